// The part of a CUDA device that PyTorch asks for in C++: one device with one stream, pinned host memory, and the
// choice of an attention kernel. A CPU build of PyTorch leaves all of these unregistered.

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  // The autograd engine orders streams by events. With one stream there is nothing to order.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};

constexpr size_t kAlignment = 64;
std::mutex mutex;
std::map<const char*, size_t> pinned;  // first byte and size of each live block, guarded by the mutex

void free_pinned(void* block) {
  {
    std::lock_guard<std::mutex> guard(mutex);
    pinned.erase(static_cast<const char*>(block));
  }
  std::free(block);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const size_t rounded = (size / kAlignment + 1) * kAlignment;
    void* block = std::aligned_alloc(kAlignment, rounded);
    if (block == nullptr) throw std::bad_alloc();
    std::lock_guard<std::mutex> guard(mutex);
    pinned[static_cast<const char*>(block)] = rounded;
    return {block, block, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }
};

PinnedAllocator pinned_allocator;

bool is_pinned(const void* address) {
  const char* byte = static_cast<const char*>(address);
  std::lock_guard<std::mutex> guard(mutex);
  auto next = pinned.upper_bound(byte);
  if (next == pinned.begin()) return false;
  auto [first, size] = *std::prev(next);
  return byte < first + size;
}

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
};

// The order of PyTorch 2.13 on a Hopper GPU: cuDNN, flash (no mask), memory-efficient, equation 1 as written.
int64_t choose_attention(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                         const std::optional<at::Tensor>& mask, double, bool, std::optional<double>, bool) {
  const auto& context = at::globalContext();
  const bool is_half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  auto backend = context.userEnabledMathSDP() ? at::SDPBackend::math : at::SDPBackend::error;
  if (is_half && context.userEnabledCuDNNSDP()) {
    backend = at::SDPBackend::cudnn_attention;
  } else if (is_half && context.userEnabledFlashSDP() && !mask.has_value()) {
    backend = at::SDPBackend::flash_attention;
  } else if ((is_half || q.scalar_type() == at::kFloat) && context.userEnabledMemEfficientSDP()) {
    backend = at::SDPBackend::efficient_attention;
  }
  return static_cast<int64_t>(backend);
}

C10_REGISTER_GUARD_IMPL(CUDA, DeviceGuard)

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, Hooks)

}  // namespace

namespace at::native {
REGISTER_CUDA_DISPATCH(_fused_sdp_choice_stub, &choose_attention)
}
