"""Lets PyTorch's CUDA wheel be imported for CPU use without the 2 GB of NVIDIA wheels that it names.

Writes a small library for each CUDA library that torch/lib refers to, next to them; every function in it yields 100,
"no device". Needs a C compiler and readelf. Usage: python cuda_stubs.py TORCH_FOLDER
"""

import collections
import os
import re
import subprocess
import sys
import tempfile

CUDA = re.compile(r"lib(cu|nv|nccl)")
# Libraries without symbol versions; their functions all go into the stub of NCCL.
UNVERSIONED = re.compile(r" UND ((?:cusparseLt|nccl|curand|cuFile)\w+)$")


def readelf(option, path):
    command = ["readelf", option, "-W", path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(torch):
    folder = os.path.join(torch, "lib")
    libraries, plain = set(), set()
    versioned = collections.defaultdict(lambda: collections.defaultdict(set))
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if ".so" not in name or not os.path.isfile(path):
            continue
        needed = re.findall(r"NEEDED.*\[(.*?)\]", readelf("-d", path))
        libraries |= {library for library in needed if CUDA.match(library)}
        owner, library = {}, None
        for line in readelf("-V", path).splitlines():
            found = re.search(r"File: (\S+)", line)
            library = found[1] if found else library
            version = re.search(r"Name: (\S+)\s+Flags: \S+\s+Version: \d+", line)
            if version and library and CUDA.match(library):
                owner[version[1]] = library
        for line in readelf("--dyn-syms", path).splitlines():
            found = UNVERSIONED.search(line.rstrip())
            if found:
                plain.add(found[1])
            found = re.search(r" UND (\S+?)@(\S+)", line)
            if found and found[2] in owner:
                versioned[owner[found[2]]][found[2]].add(found[1])
    # The driver's library is asked for at run time only.
    libraries.discard("libcuda.so.1")
    for library in sorted(libraries):
        names = set(plain) if library.startswith("libnccl") else set()
        script = ""
        for version, own in versioned[library].items():
            names |= own
            script += "%s { global: %s };\n" % (version, " ".join(name + ";" for name in sorted(own)))
        with tempfile.TemporaryDirectory() as place:
            source, versions = os.path.join(place, "stub.c"), os.path.join(place, "stub.map")
            with open(source, "w") as file:
                file.write("".join("int %s(void) { return 100; }\n" % name for name in sorted(names)) or "int none;\n")
            with open(versions, "w") as file:
                file.write(script)
            command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", "-Wl,-soname," + library, source]
            command += ["-Wl,--version-script=" + versions] if script else []
            subprocess.run(command + ["-o", os.path.join(folder, library)], check=True)


main(sys.argv[1])
