"""The command line: parse, call one plain function, print. Nothing heavy is imported until a command needs it."""

import os
import re
import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli.errors import DataError, MtcliError, UsageError

app = typer.Typer(
    name="mtcli",
    help='Train the Transformer of "Attention Is All You Need" on parallel text, translate with it and score it.',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
tokenizer_app = typer.Typer(no_args_is_help=True, help="Train a tokenizer, or look at what one does.")
app.add_typer(tokenizer_app, name="tokenizer")

ModelOption = Annotated[
    Path, typer.Option("--model", envvar="MTCLI_MODEL", metavar="DIR", help="A run folder; the last one trained.")
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Read invalid UTF-8 as U+FFFD, and count it.")]
LATEST = Path("runs/latest")


def main() -> None:
    """Run the command line; the only place that turns an error into a line and an exit code."""
    from mtcli.progress import show_log

    show_log()
    for stream in (sys.stdout, sys.stderr):  # UTF-8 whatever the locale; None where the stream is closed
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a full disk still has its line and its exit code
    except MtcliError as error:
        _fail(str(error), error.exit_code, error)
    except KeyboardInterrupt:
        sys.exit(130)
    except (MemoryError, RuntimeError) as error:  # PyTorch's allocators raise RuntimeError
        if isinstance(error, RuntimeError) and not re.search("out of memory|can't allocate memory", str(error)):
            _fail(f"unexpected {type(error).__name__}: {error}; MTCLI_DEBUG=1 shows where; please report it", 1, error)
        _fail("out of memory; try a smaller model, beam, file or --set train.batch_tokens", 5, error)
    except OSError as error:
        _fail(f"{error.filename or 'output'}: {error.strerror or error}", 5, error)
    except Exception as error:
        _fail(f"unexpected {type(error).__name__}: {error}; MTCLI_DEBUG=1 shows where; please report it", 1, error)


def _fail(message: str, code: int, error: BaseException) -> None:
    if os.environ.get("MTCLI_DEBUG") == "1":
        raise error
    print(f"mtcli: {message}", file=sys.stderr)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        from mtcli import __version__

        print(f"mtcli {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    pass


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="What to train.")] = None,
    train: Annotated[
        list[str] | None,
        typer.Option("--train", metavar="PATH[@WEIGHT]", help="Training pairs; may be given several times."),
    ] = None,
    valid: Annotated[str | None, typer.Option(metavar="PATH", help="Validation pairs.")] = None,
    test: Annotated[str | None, typer.Option(metavar="PATH", help="Test pairs.")] = None,
    src: Annotated[str | None, typer.Option(help="Source language, as files and columns name it.")] = None,
    tgt: Annotated[str | None, typer.Option(help="Target language.")] = None,
    swap: Annotated[bool | None, typer.Option("--swap", help="Turn the two sides round.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run folder.")] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Start from this model's weights and tokenizer.")
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="tiny|small|base|big", help="Size of the model.")] = None,
    time: Annotated[str | None, typer.Option(metavar="30m", help="End in this time.")] = None,
    max_steps: Annotated[int | None, typer.Option(metavar="N", help="End after this many steps.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="section.key=value", help="Any setting of config.toml.")
    ] = None,
    replace: ReplaceOption = False,
    device: DeviceOption = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start afresh in the run folder.")] = False,
) -> None:
    """Train a model; the same command again goes on where it stopped. With nothing named: the built-in demo."""
    from mtcli.config import build
    from mtcli.distributed import pick_device
    from mtcli.train import train as run_training

    options = {
        "data.train": train or None,
        "data.valid": valid,
        "data.test": test,
        "data.src": src,
        "data.tgt": tgt,
        "data.swap": swap,
        "data.replace": replace or None,
        "preset": preset,
        "train.time": time,
        "train.max_steps": max_steps,
    }
    settings = build(config, options, set_ or (), initial=_shape_of(init) if init else None)
    run = out or Path("runs") / _run_name(settings.data, config)
    try:
        run_training(settings, run, pick_device(device), init=init, overwrite=overwrite)
    finally:
        if (run / "model.safetensors").exists():
            _remember(run)


def _shape_of(model: Path) -> dict[str, Any]:
    """What a run that starts from a model has in common with it, unless told otherwise."""
    from mtcli.checkpoint import load_model

    _, info, _ = load_model(model)
    shape = info.model.model_dump(exclude={"dropout"}, exclude_none=True)
    return {"data.src": info.src, "data.tgt": info.tgt, **{f"model.{name}": value for name, value in shape.items()}}


def _run_name(data: Any, config: Path | None) -> str:
    if not data.train:
        return "demo"
    from mtcli.corpus import parse_source

    first = parse_source(data.train[0]).path.partition(",")[0].partition(":")[0].rstrip("/")
    name = config.stem if config else Path(first).name.partition(".")[0]
    return f"{name}-{data.src}-{data.tgt}"


def _remember(run: Path) -> None:
    """Let `runs/latest` lead to this run."""
    LATEST.parent.mkdir(parents=True, exist_ok=True)
    aside = LATEST.with_name(f".latest-{os.getpid()}")
    aside.unlink(missing_ok=True)
    aside.symlink_to(os.path.relpath(run.resolve(), LATEST.parent.resolve()))
    aside.replace(LATEST)


@app.command()
def translate(
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Sentences to translate.")] = None,
    input_: Annotated[str | None, typer.Option("-i", "--input", metavar="FILE|-", help="A file; - is stdin.")] = None,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE|-", help="Where to write.")] = "-",
    model: ModelOption = LATEST,
    beam_size: Annotated[int | None, typer.Option("-b", "--beam-size", min=1, help="1: greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="α of ((5 + n) / 6)^α.")] = None,
    n_best: Annotated[int, typer.Option(min=1, metavar="N", help="Translations of each line, best first.")] = 1,
    max_length: Annotated[int | None, typer.Option(min=1, help="Most pieces of a translation.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw pieces at random.")] = False,
    temperature: Annotated[float, typer.Option(min=0.01, help="Of sampling: below 1 is safer.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Sample among the K likeliest pieces; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="Of sampling.")] = 1,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Begin every translation with this.")] = "",
    format_: Annotated[str, typer.Option("--format", metavar="text|json|nbest", help="Of the output.")] = "text",
    scores: Annotated[bool, typer.Option("--scores", help="The score of each translation, and a tab, first.")] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="A tab, and which source word each word comes from (0-0 1-2), last.")
    ] = False,
    replace: ReplaceOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate arguments, a file, standard input, or line by line at a terminal. One line in, one line out."""
    if format_ not in ("text", "json", "nbest"):
        raise UsageError(f"--format {format_}: choose from text, json, nbest")
    if text and input_:
        raise UsageError(f"give either sentences or --input {input_}, not both")
    if input_ and Path(output).exists() and Path(input_).exists() and Path(output).samefile(input_):
        raise UsageError(f"--output {output}: is the input too, and would be emptied before it is read")
    from dataclasses import replace as with_changes

    from mtcli.distributed import pick_device
    from mtcli.streams import formatted, open_output, quiet_pipe, translations
    from mtcli.translate import Translator

    quiet_pipe()
    translator, options = Translator.load(model, pick_device(device))
    options = with_changes(
        options,
        beam_size=max(options.beam_size if beam_size is None else beam_size, n_best),
        length_penalty=options.length_penalty if length_penalty is None else length_penalty,
        n_best=n_best,
        max_length=max_length,
        prefix=prefix,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        alignments=alignments,
    )
    with open_output(output) as stream:
        for number, found in enumerate(translations(translator, text, input_, options, replace=replace)):
            for line in formatted(found, number, format_, scores=scores, alignments=alignments):
                stream.write(line + "\n")
            stream.flush()


@app.command()
def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One sentence.")],
    model: ModelOption = LATEST,
    layer: Annotated[int, typer.Option(min=1, metavar="N", help="Whose numbers: encoder and decoder layer.")] = 1,
    head: Annotated[int, typer.Option(min=1, metavar="N", help="Which of its attention heads.")] = 1,
    step: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only this step of the decoder, in detail.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Whole matrices, not their first rows and columns.")] = False,
    neighbours: Annotated[bool, typer.Option("--neighbours", help="Each piece's nearest learned embeddings.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Every number, for programs.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="A page with every layer and head.")
    ] = None,
    beam_size: Annotated[int | None, typer.Option("-b", "--beam-size", min=1, help="1: greedy.")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Show one translation step by step: pieces, vectors, attention, probabilities, beam. Numbers of the run itself."""
    from dataclasses import replace as with_changes

    from mtcli.distributed import pick_device
    from mtcli.explain import explain as explain_translation
    from mtcli.explain_page import to_dict, to_html, to_text
    from mtcli.streams import arguments, quiet_pipe
    from mtcli.translate import Translator

    quiet_pipe()
    (text,) = arguments([text.replace("\n", " ")])
    translator, options = Translator.load(model, pick_device(device))
    shape = translator.model.config
    layers = max(shape.num_encoder_layers, shape.num_decoder_layers)
    for name, value, most in (("--layer", layer, layers), ("--head", head, shape.num_heads)):
        if value > most:
            raise UsageError(f"{name} {value}: this model has {most}")
    if beam_size is not None:
        options = with_changes(options, beam_size=beam_size)
    found = explain_translation(translator, text, options, neighbours=neighbours)
    if step is not None and step > len(found.steps):
        raise UsageError(f"--step {step}: this translation took {len(found.steps)}")
    if html is not None:
        html.write_text(to_html(found, layer - 1, head - 1), encoding="utf-8")
        print(f"wrote {html}", file=sys.stderr)
    if json_:
        import json

        print(json.dumps(to_dict(found, layer - 1, head - 1), ensure_ascii=False))
    elif html is None:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        at = None if step is None else step - 1
        for line in to_text(found, layer - 1, head - 1, step=at, full=full, colour=colour):
            print(line)


@app.command("eval")
def evaluate_(
    model: ModelOption = LATEST,
    bleu: Annotated[bool, typer.Option("--bleu", help="BLEU (the default).")] = False,
    chrf: Annotated[bool, typer.Option("--chrf", help="chrF.")] = False,
    ter: Annotated[bool, typer.Option("--ter", help="TER.")] = False,
    split: Annotated[str, typer.Option(metavar="test|valid", help="Of the model's own data.")] = "test",
    src_file: Annotated[str | None, typer.Option(metavar="FILE", help="Sources to translate; - is stdin.")] = None,
    ref_file: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="References; may be given several times.")
    ] = None,
    hyp_file: Annotated[str | None, typer.Option(metavar="FILE", help="Score these translations instead.")] = None,
    beam_size: Annotated[int | None, typer.Option("-b", "--beam-size", min=1, help="1: greedy.")] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0, help="α of ((5 + n) / 6)^α.")] = None,
    confidence: Annotated[bool, typer.Option("--confidence", help="95% intervals by bootstrap.")] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    tokenize: Annotated[str | None, typer.Option(help="sacrebleu's tokenizer for BLEU; 13a unless given.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="sacrebleu's own JSON.")] = False,
    replace: ReplaceOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Score a model on its test split, on two files, or score finished translations. sacrebleu, with signatures."""
    from mtcli import evaluate

    if split not in ("test", "valid"):
        raise UsageError(f"--split {split}: choose from test, valid")
    if (src_file or hyp_file) and not ref_file:
        raise UsageError("give the references with --ref-file")

    from mtcli.streams import lines_of, quiet_pipe

    quiet_pipe()
    sources: list[str] = []
    if ref_file:
        references = [list(lines_of(path, replace=replace)) for path in ref_file]
        if src_file:
            sources = list(lines_of(src_file, replace=replace))
        elif not hyp_file:
            raise UsageError("give --src-file to translate, or --hyp-file to score")
    else:
        from mtcli.prepare import read_split

        pairs = read_split(model, split)
        sources, references = [s for s, _ in pairs], [[t for _, t in pairs]]
    if hyp_file:
        hypotheses = list(lines_of(hyp_file, replace=replace))
    else:
        if len(sources) != len(references[0]):
            raise DataError(f"{src_file} has {len(sources)} lines, {(ref_file or ['?'])[0]} {len(references[0])}")
        hypotheses = _hypotheses(model, device, sources, beam_size, length_penalty)
    wanted = [name for name, on in (("bleu", bleu), ("chrf", chrf), ("ter", ter)) if on] or ["bleu"]
    found = evaluate.score(
        hypotheses,
        references,
        metrics=wanted,  # type: ignore[arg-type]
        lowercase=lowercase,
        tokenize=tokenize,
        confidence=confidence,
    )
    print(evaluate.to_json(found) if json_ else evaluate.to_text(found))


def _hypotheses(
    model: Path, device: str, sources: list[str], beam_size: int | None, length_penalty: float | None
) -> list[str]:
    from dataclasses import replace as with_changes

    from mtcli.distributed import pick_device
    from mtcli.translate import Translator

    translator, options = Translator.load(model, pick_device(device))
    if beam_size is not None:
        options = with_changes(options, beam_size=beam_size)
    if length_penalty is not None:
        options = with_changes(options, length_penalty=length_penalty)
    return [t.text for t in translator.translate(sources, options, total=len(sources))]


@tokenizer_app.command("train")
def tokenizer_train(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Text, one sentence a line.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="tokenizer.json")],
    type_: Annotated[str, typer.Option("--type", metavar="bpe|word|char", help="What a piece is.")] = "bpe",
    vocab_size: Annotated[int | None, typer.Option(min=1, help="Pieces; from the size of the text.")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Learn one vocabulary from all the files."""
    from mtcli import tokenizer
    from mtcli.corpus import read_lines

    def lines() -> Iterator[str]:
        for path in files:
            yield from read_lines(path, replace=replace)

    learnt = tokenizer.train(lines(), [], kind=type_, vocab_size=vocab_size)
    learnt.save(output)
    print(f"{learnt.src_size} pieces in {output}", file=sys.stderr)


@tokenizer_app.command("encode")
def tokenizer_encode(
    model: ModelOption = LATEST,
    input_: Annotated[str, typer.Option("-i", "--input", metavar="FILE|-", help="Text.")] = "-",
    ids: Annotated[bool, typer.Option("--ids", help="Numbers instead of pieces.")] = False,
    tgt: Annotated[bool, typer.Option("--tgt", help="With the target vocabulary.")] = False,
    replace: ReplaceOption = False,
) -> None:
    """Lines to pieces, with a space between them; a piece's own space is written ▁."""
    from mtcli.streams import lines_of, quiet_pipe

    quiet_pipe()
    found = _tokenizer(model)
    for line in lines_of(input_, replace=replace):
        row = (found.encode_tgt if tgt else found.encode_src)([line])[0]
        pieces = found.tgt_pieces if tgt else found.src_pieces
        print(" ".join(map(str, row) if ids else pieces(row)))


@tokenizer_app.command("decode")
def tokenizer_decode(
    model: ModelOption = LATEST,
    input_: Annotated[str, typer.Option("-i", "--input", metavar="FILE|-", help="Lines of ids.")] = "-",
) -> None:
    """Lines of target ids (as `encode --ids --tgt` prints them) back to text."""
    from mtcli.streams import lines_of, quiet_pipe

    quiet_pipe()
    found = _tokenizer(model)
    for number, line in enumerate(lines_of(input_), 1):
        try:
            ids = [int(word) for word in line.split()]
        except ValueError:
            raise DataError(f"line {number}: not a line of piece ids") from None
        if wrong := [i for i in ids if not 0 <= i < found.tgt_size]:
            raise DataError(f"line {number}: there is no piece {wrong[0]}; the last is {found.tgt_size - 1}")
        print(found.decode([ids])[0])


def _tokenizer(model: Path) -> Any:
    from mtcli.tokenizer import Tokenizer

    return Tokenizer.load(model if model.suffix == ".json" else model / "tokenizer.json")
