# Makes the store and the files on which the examples of the help texts run. doc/specs/store.md has the revisions @2, @3
# and @12, and the session travel goes beyond @120.
set -e
export TALLY_SECRET_KEY_FILE="$HOME/old-keys"

# Files.
(umask 077; echo "2026:$(printf %064d 1)" >old-keys)
echo 'The store.' | tee store.md >plan.md
echo '{"version": 7}' | tee input.json result.json >release.json
echo 'Is it red?' >question.md
echo '{"name": "com.acme.vote.cast.v1", "moves": "thread", "schema": {"required": ["for"]}}' >vote.json
echo '[{"n": 1}, {"n": 2}]' >jobs.json
echo '{"role":"user","content":"hi"}' >turns.jsonl
echo '{"specversion":"1.0","id":"1","source":"urn:x","type":"tally.turn.appended.v1","subject":"session/events","data":{"entries":[{"thread":"main","turn":{"role":"user","content":"x"}}]}}' >cloudevents.jsonl
for name in build-one on-message my-agent codex claude notify-send; do
	printf '#!/bin/sh\ncat >/dev/null\n' >bin/$name
	chmod +x bin/$name
done
cp bin/build-one bin/on-message .
echo 'import sys; sys.stdin.read()' >build.py
printf 'test:\n\t@true\n' >Makefile
cp -r conversations .tally
cp -r conversations travel
cp -r conversations cashflow
cat >kettle.md <<EOF
---
id: 8f14e45f-ceea-467f-a0e6-6c1b1b1f1b1f
title: Kettle
state: idle
---

## Assignment

Boil water.
EOF
cat >flow.json <<EOF
{"initial": "build", "recovery": "restart",
 "states": {"build": {"to": ["test", "given up"]}, "test": {"to": ["build", "shipped"]},
            "shipped": {"end": true}, "given up": {"end": true}}}
EOF

# Documents.
tally doc put doc/goal plan.md --create
tally doc put doc/specs/store.md store.md --create --title 'The store' # @2
echo 'The store, again.' | tally doc put doc/specs/store.md --base @2 --keep
tally doc put doc/draft plan.md --create
tally doc put workflow/old flow.json --create --link parent=doc/goal
tally doc put note/today store.md --create --owner ann
tally doc put note/secret store.md --create
tally doc put note/menu store.md --create
tally doc put workflow/release flow.json --create
echo hello | tally inbox send user --from ci
tally queue add build --configure --lease 10m
echo 'The store, at last.' | tally doc put doc/specs/store.md --save # @12

# Queues and flows.
printf 'docs\nbinaries\n' | tally queue add build --id v1
tally queue add build --configure --max-attempts 1
tally queue work build --once -- true
tally queue work build --once -- false || test $? = 1
tally flow start release --id release-7
tally flow start release --id 01a7-first
tally inbox run ci --open --until-empty -- true

# Sessions.
tally import conversations
for n in 1 2 3 4 5 6 7 8 9 10; do
	echo '{"role":"user","content":"Question '$n' about a refund"}'
	echo '{"role":"assistant","content":"Answer '$n'"}'
done >talk
tally append travel <talk
tally append history/support-42 <talk
tally append ses_0198c2 --thread gpt-5 <talk
tally append ses_0198c2 <talk
tally append travel <talk
tally watch --once
tally rewind travel --to '#12' -y
tally undo travel -y
tally rewind travel --to '#11' -y
tally backup backups
