#!/usr/bin/env bash
# All of the comparison on one machine with a GPU, within a time: servers, contexts of the rivals that need a model, then
# replies and verdicts for everything. What is not done when time ends is missing, and what is done is kept: run it again
# with the same DEST, or with what an earlier run left in KNOWN, and it goes on.
#
#   MODEL=folder CONTEXTS=dir RETCON_DATA=dir RETCON_MINILM=dir DEST=dir [WHEELS=dir] [TOTAL=520] [CAP=300] bash bench/rivals/run.sh
#
# MODEL     a transformers folder          CONTEXTS  contexts made without a model (bench.rivals.contexts)
# DEST      where everything is written; DEST/back gets the few files to take home
# KNOWN     replies of the servers from an earlier run (files *.kept.jsonl), optional
# LIMIT     so many questions of one history a domain, TURNS so many turns of it: a rehearsal
# SKIP      names of steps to leave out, of: check ours mem0 chat after lingua
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
began=$(date +%s)
TOTAL=${TOTAL:-520} CAP=${CAP:-300} PYTHON=${PYTHON:-python3} SKIP=" ${SKIP:-} "
export PYTHONPATH="$here${WHEELS:+:$WHEELS}" PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
export MEM0_TELEMETRY=False ANONYMIZED_TELEMETRY=False OPENAI_API_KEY=none LANGSMITH_TRACING=false RETCON_DATA RETCON_MINILM
mkdir -p "$DEST"/{kept,logs,back,contexts,ours,first,second}
small="${LIMIT:+--limit $LIMIT} ${TURNS:+--turns $TURNS}"
left() { echo $((TOTAL - ($(date +%s) - began))); }
say() { echo "$(date +%H:%M:%S) +$(($(date +%s) - began))s $*" | tee -a "$DEST/logs/run.log"; }
runs() { [[ "$SKIP" != *" $1 "* ]]; }

pack() { # the few files to take home
  (cd "$DEST" && tar czf back/contexts.tgz contexts && tar czf back/kept.tgz kept && tar czf back/logs.tgz logs) 2> /dev/null
  for each in ours first second; do (cd "$DEST/$each" && tar cf "../back/$each.tar" ./*.gz) 2> /dev/null; done
  cp "$DEST"/logs/check.json "$DEST"/back/ 2> /dev/null
  ls -la "$DEST/back" | tee -a "$DEST/logs/run.log"
}
stop() {
  for each in $servers $others; do kill "$each" 2> /dev/null; done
  pack
}
servers="" others=""
trap stop EXIT
trap 'exit 0' TERM INT

if command -v nvidia-cuda-mps-control > /dev/null && nvidia-cuda-mps-control -d 2> /dev/null; then say "MPS is on"; fi

serve() { # port, tokens under way
  known=$(for each in ${KNOWN:-/nowhere}/*.kept.jsonl; do [ -f "$each" ] && printf ' --known %s' "$each"; done)
  $PYTHON -m bench.rivals.server --model "$MODEL" --port "$1" --batch-tokens "$2" $known \
    --replies "$DEST/kept/$1.kept.jsonl" > "$DEST/logs/server-$1.log" 2>&1 &
  servers="$servers $!"
}
serve 8101 1000000
serve 8102 600000
serve 8103 600000

# ours and what needs no model: read and judged from the start
if runs ours; then
  (
    timeout "$(left)" $PYTHON -m bench.runs --model "$MODEL" --only rivals --export --chunk 2048 --batch-tokens 600000 \
      ${LIMIT:+--limit $LIMIT} --out "$DEST/ours" > "$DEST/logs/ours.log" 2>&1
    timeout "$(left)" $PYTHON -m bench.rivals.answers --model "$MODEL" --contexts "$CONTEXTS" \
      --batch-tokens 600000 ${ONLY:+--systems $ONLY} --out "$DEST/first" > "$DEST/logs/first.log" 2>&1
  ) &
  ours=$!
fi

for port in 8101 8102 8103; do
  until grep -q listening "$DEST/logs/server-$port.log" 2> /dev/null; do
    sleep 1
    if [ "$(left)" -lt 60 ]; then say "no server on $port"; exit 1; fi
  done
done
say "servers listen"

make() { # port, histories at once, systems, name
  timeout "$CAP" $PYTHON -m bench.rivals.contexts --endpoint "http://127.0.0.1:$1/v1" --threads "$2" --systems "$3" $small \
    --out "$DEST/contexts" > "$DEST/logs/$4.log" 2>&1 &
  others="$others $!"
}
squeeze() { # system, domains, name
  timeout "$CAP" $PYTHON -m bench.rivals.contexts --folder "$MODEL" --systems "$1" --domains "$2" $small \
    --out "$DEST/contexts/$3" > "$DEST/logs/$3.log" 2>&1 &
  others="$others $!"
}
if runs check; then
  timeout 120 $PYTHON -m bench.rivals.check --endpoint http://127.0.0.1:8102/v1 --threads 10 --out "$DEST/logs/check.json" \
    --systems mem0,langchain-summary,llamaindex-facts,langmem,after-recomp-abstractive,after-generative-agents,after-memgpt,after-trustmem,after-recmem,after-a-mem \
    > "$DEST/logs/check.log" 2>&1 &
  others="$others $!"
fi
runs mem0 && make 8101 40 mem0 mem0
if runs chat; then
  make 8102 40 llamaindex-facts facts
  make 8102 40 langchain-summary summary
  make 8102 40 langmem langmem
fi
runs after && make 8103 10 after-recomp-abstractive,after-memgpt,after-trustmem,after-generative-agents,after-recmem,after-a-mem after
if runs lingua; then
  squeeze longllmlingua locomo,friendsqa long1
  squeeze longllmlingua timeqa long2
  squeeze longllmlingua factcon long3
  squeeze llmlingua locomo,friendsqa plain1
  squeeze llmlingua timeqa,factcon plain2
fi
for each in $others; do wait "$each"; done
say "contexts are made, or their time is over"
for each in $servers; do kill "$each" 2> /dev/null; done
servers="" others=""
pack > /dev/null
folders=$(for each in "$DEST"/contexts "$DEST"/contexts/*/; do printf ' --contexts %s' "$each"; done)
timeout "$(($(left) - 10))" $PYTHON -m bench.rivals.answers --model "$MODEL" $folders --batch-tokens 1000000 \
  --out "$DEST/second" > "$DEST/logs/second.log" 2>&1
say "rivals that need a model are read"
runs ours && wait "$ours"
say "done"
