"""Change a checkpoint and recompute its checksums, as an attacker could."""

from safetensors.torch import load_file, save_file

from tilth.files import checksum, checksum_of, load_manifest, save_manifest


def rewrite(checkpoint, tensors=None, **changes):
    """Replace values of the state, and apply functions to the tensors of files."""
    folder = checkpoint.folder
    for name, change in (tensors or {}).items():
        file = folder / name
        save_file(change(load_file(file)), file, {"format": "pt"})
    content = load_manifest(folder / "state.json", kind="checkpoint", version=1)
    del content["checksum"]
    content["checksums"] = {name: checksum(folder / name) for name in content["checksums"]}
    content |= changes
    content["checksum"] = checksum_of(content)
    save_manifest(folder / "state.json", content, kind="checkpoint", version=1, overwrite=True)


def first_row(tensors):
    """Keep one row of the first moment of a matrix: a file made to crash a kernel."""
    name = next(name for name, value in tensors.items() if "exp_avg" in name and value.ndim == 2)
    return {**tensors, name: tensors[name][:1].clone()}
