# A small server of an exported model, without PyTorch (docs/serving.md, "A small server"):
#
#     docker build -t mtcli-serve .
#     docker run -p 127.0.0.1:5000:5000 -v "$PWD/runs/demo-ctranslate2:/model:ro" mtcli-serve
#
# Give `-e MTCLI_API_KEY=secret` before you publish the port to other machines.

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/mtcli
RUN /opt/mtcli/bin/pip install --no-cache-dir --no-deps .
RUN /opt/mtcli/bin/pip install --no-cache-dir ctranslate2 tokenizers numpy typer rich tqdm pydantic filelock py3langid sentencex fastapi uvicorn h11 python-multipart markdown-it-py

FROM python:3.12-slim
COPY --from=build /opt/mtcli /opt/mtcli
RUN useradd --create-home mtcli
USER mtcli
WORKDIR /home/mtcli
EXPOSE 5000
ENTRYPOINT ["/opt/mtcli/bin/mtcli", "serve", "--model", "/model", "--host", "0.0.0.0", "--port", "5000"]
