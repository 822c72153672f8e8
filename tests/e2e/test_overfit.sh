#!/bin/bash
# A short version of the overfitting run of docs/notes/overfit.md: a small model with a structure
# module overfits one chain. The loss falls and lDDT-CA rises. The chain is real if there is
# reference data, else synthetic. Its TensorBoard events must agree with metrics.jsonl.
. "$(dirname "$0")/expect.sh"

set_up() {
    if [ -d "${FM_REFERENCE_DATA:-}/golden/dataset" ]; then
        ln -s "$FM_REFERENCE_DATA/golden/dataset" data
        echo 1psm_A >chains
    else
        foldmill synth --chains 1 --seed 5 --max-length 40 --depth 30 -o data --quiet
        ls data/alignments >chains
    fi
    foldmill build data --cache cache --quiet >build.log
    foldmill snapshot create one --cache cache --chains chains >snapshot.log
    start_server socket --cache cache --snapshot one
}

tear_down() {
    stop TERM $server
}

the_loss_falls_and_lddt_rises() {
    printf \
        '[model]\nn_block = 1\nn_structure_iteration = 2\n[data]\ncrop_size = 40\nmax_msa_clusters = 4\n[optimizer]\nlearning_rate = 3e-3\nwarmup_samples = 10\n[metrics]\nstructure_every = 2\n' \
        >short.ini
    OPENBLAS_NUM_THREADS=1 foldmill train --data unix:socket --preset overfit --config short.ini --steps 80 \
        --checkpoint-every 0 --tensorboard events --out run --quiet >train.log 2>&1
    python3 -c \
        'import json; r=[json.loads(l) for l in open("run/metrics.jsonl")]; m=lambda k,x: sum(s[k] for s in x if k in s)/sum(k in s for s in x); a,b=r[:10],r[-20:]; print([(k,m(k,a),m(k,b)) for k in ("loss","lddt_ca")]); exit(not (m("loss",b) < 0.7*m("loss",a) and m("lddt_ca",b) > m("lddt_ca",a)+0.15))'
}

# tests/e2e/read_events.py is an independent reader of event files.
the_events_are_the_metrics() {
    "$tests/e2e/read_events.py" events/events.out.tfevents.foldmill >events.jsonl
    python3 -c \
        'import json; e=[json.loads(l) for l in open("events.jsonl")][1:]; r=[json.loads(l) for l in open("run/metrics.jsonl")]; near=lambda a,b: abs(a-b) <= 1e-6*abs(b); names={"loss/total":"loss","loss/torsion":"torsion","loss/distogram":"distogram","structure/tm_score":"tm_score","structure/lddt_ca":"lddt_ca","optimizer/learning_rate":"learning_rate","time/step_s":"step_s"}; exit(not (len(e) == len(r) == 80 and all(x["step"] == y["step"] and all((t in x) == (n in y) and near(x.get(t,0),y.get(n,0)) for t,n in names.items()) for x,y in zip(e,r))))'
}

run_tests the_loss_falls_and_lddt_rises \
    the_events_are_the_metrics

