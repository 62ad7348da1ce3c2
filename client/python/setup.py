"""Generates the messages of the wire when the package is built: they are in no repository.

The .proto files are those of the repository, or the copy that a source distribution carries.
"""

from importlib.metadata import version
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).parent
# In the repository, and in a source distribution.
PROTO = next(folder for folder in (HERE / "../../proto", HERE / "proto") if (folder / "stickycas").is_dir())
SOURCES = sorted((PROTO / "stickycas/v1").glob("*.proto"))


class Generate(build_py):
    """Builds the modules, and `stickycas.v1` of the .proto files."""

    def run(self) -> None:
        super().run()
        # In an editable installation the modules stay where they are.
        out = HERE / "src" if self.editable_mode else Path(self.build_lib)
        import grpc_tools
        from grpc_tools import protoc

        includes = [f"-I{PROTO}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
        generated = [f"--{kind}_out={out}" for kind in ("python", "pyi")]
        if protoc.main(["protoc", *includes, *generated, *map(str, SOURCES)]):
            raise SystemExit("the .proto files do not compile")


class WithProto(sdist):
    """Puts the .proto files into the source distribution."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        for source in SOURCES:
            copy = Path(base_dir) / "proto" / source.relative_to(PROTO)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())


setup(
    cmdclass={"build_py": Generate, "sdist": WithProto},
    install_requires=[
        "grpcio>=1.51",
        f"protobuf>={version('protobuf')}",
        "googleapis-common-protos>=1.60",
    ],
)
