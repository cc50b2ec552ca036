"""`mtcli score`."""

import sys
from typing import Annotated

from mtcli.cli.input_files import check_plain_text, check_standard_input, must_exist
from mtcli.cli.option_kinds import text_file_option
from mtcli.cli.options import LATEST, DeviceOption, ModelOption, ReplaceOption, ToOption, only_target

EXAMPLES = ("mtcli score --src-file in.en --tgt-file out.es",)


def score(
    src_file: Annotated[
        str,
        text_file_option(
            "--src-file",
            help="Source sentences, one per line; - is standard input.",
        ),
    ],
    tgt_file: Annotated[
        str,
        text_file_option(
            "--tgt-file",
            help="Their translations, one per line; - is standard input.",
        ),
    ],
    replace: ReplaceOption = False,
    model: ModelOption = LATEST,
    to: ToOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Score given translations with the model: print log P(y | x) in nats, a tab, and its mean per token for each line.

    A pair with a blank side gives a blank line.
    """
    from mtcli.corpus.readers.pairs import side_by_side
    from mtcli.runtime.device import pick_device
    from mtcli.runtime.outputs import check_outputs
    from mtcli.runtime.progress import on_terminal
    from mtcli.text.lines import Counts
    from mtcli.translate.backends.pytorch import PyTorchBackend
    from mtcli.translate.scoring import likelihoods
    from mtcli.translate.streams import lines_of, name_of, report_counts

    target = only_target(to)
    files = {"--src-file": src_file, "--tgt-file": tgt_file}
    check_standard_input(files)
    check_plain_text(files, "write each side to a file of its own (data clean -o PREFIX writes two)")
    check_outputs(["-"], [src_file, tgt_file], models=[model])
    must_exist(src_file, tgt_file)
    backend = PyTorchBackend.load(model, pick_device(device))
    if target:
        backend.check_target(target)  # before the files are read
    counts = Counts()
    sources = lines_of(src_file, replace=replace, counts=counts)
    translations = lines_of(tgt_file, replace=replace, counts=counts)
    pairs = side_by_side(sources, translations, name_of(src_file), name_of(tgt_file))
    target = target or backend.default_options.to
    for likelihood in likelihoods(backend, pairs, to=target, quiet=on_terminal(sys.stdout)):
        print(f"{likelihood.log_prob:.4f}\t{likelihood.mean:.4f}" if likelihood else "")
    report_counts(counts)
