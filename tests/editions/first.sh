#!/bin/sh
# Write first.tar.xz with the given command of tilth: sh first.sh .venv/bin/tilth
# Commit d627945 wrote the archive in this folder. Do not regenerate it: later editions must open the
# files of the first one.
set -eu
tilth=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
rm -rf /tmp/tilth-first
mkdir /tmp/tilth-first
cd /tmp/tilth-first

"$tilth" corpus stories --out stories.txt --size 12kB
"$tilth" tokenizer train stories.txt --vocab-size 270 --special '<|endoftext|>' --out tokenizer.json
"$tilth" tokenizer convert tokenizer.json --out gpt2
"$tilth" tokenizer convert tokenizer.json --out tokenizer.tiktoken
"$tilth" tokenize stories.txt --tokenizer tokenizer.json --out data --valid 0.4

small="--batch-size 2 --model.d-model 4 --model.num-layers 1 --model.num-heads 2
    --model.context-length 16 --model.ffn silu --model.d-ff 8 --model.tie-embeddings
    --machine.threads 1 --machine.no-compile"
watch="--watch.evaluation-tokens 100 --watch.sample-tokens 8"
"$tilth" train tiny --data data --out runs/muon --steps 6 --watch.save-every 3 $small $watch
"$tilth" train tiny --data data --out runs/adamw --steps 6 --watch.save-every 4 \
    --optimizer.name adamw --optimizer.lr 0.01 $small $watch

printf 'recipe = "tiny"\n[grid]\noptimizer.lr = [1e-3, 1e-2]\n' > question.toml
"$tilth" lab question.toml --data data --out lab --steps 3 $small $watch
"$tilth" lab search --data data --out search --recipe tiny --steps 3 --trials 2 \
    --vary optimizer.lr=0.001..0.1 $small

rm -f ./*/report*  # megabytes that no test reads
find . -name lock -delete
tar --sort=name --owner=0 --group=0 --mtime=2026-11-18 -cf - . | xz -9e > "$here/first.tar.xz"
