#!/bin/sh
# A program with the runner's command line whose model is the identity: each output is the input. It is small, so
# that a deploy takes a moment and can be broken off at hundreds of places.
inputs='' json='' output=output describe='' executions=1 model='' digests=no
for word in "$@"; do
  case $word in
    --model_path=*) model=${word#*=};;
    --inputs=*) inputs=${word#*=};;
    --json=*) json=${word#*=};;
    --output_file=*) output=${word#*=};;
    --num_executions=*) executions=${word#*=};;
    --describe) describe=yes;;
  esac
done
if [ -n "$describe" ]; then
  echo '{"methods": [{"name": "forward", "backends": [], "operators": [],'
  echo '  "inputs": [{"dtype": "float32", "shape": [1], "kind": "tensor", "ranges": [[0, null]]}]}]}'
  exit 0
fi
[ -s "$(dirname "$0")/../lib/payload" ] || exit 7
[ "$executions" -lt 1000 ] || sleep 4242
cp "$inputs" "${output}0.npy" || exit 8
# NumPy's header of a small array is 128 bytes.
sum=$(tail -c +129 "$inputs" | sha256sum)
size=$(($(wc -c <"$inputs") / 4 - 32))
tensor="{\"dtype\": \"float32\", \"shape\": [$size], \"sha256\": \"${sum%% *}\"}"
read=
case $digests in
  yes) own=$(sha256sum <"$model");;
  fails) exit 7;;
  wrong) own=$(echo wrong | sha256sum);;
esac
[ "$digests" = no ] || read="\"digests\": {\"files\": [{\"path\": \"$model\", \"size\": 1, \"sha256\": \"${own%% *}\"}]},"
cat >"$json" <<END || exit 8
{"engine": {"name": "tiny", "version": "1"}, "method": "forward", "load_ms": 0.1,
 "latency_ms": {"count": 1, "min": 1, "p50": 1, "p90": 1, "p99": 1, "mean": 1}, "peak_rss_bytes": 1, "threads": 1,
 $read "inputs": [$tensor], "outputs": [$tensor]}
END
