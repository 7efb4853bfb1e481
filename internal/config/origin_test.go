package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallylog/tally/internal/config"
)

// Each setting has its origin: the flag, the variable, the line of the file, or the default. Settings of a server that
// is not used are not shown.
func TestOrigins(t *testing.T) {
	for name, c := range map[string]struct {
		user, project string
		context       string // content of context c of the nats command
		env           map[string]string
		call          config.Overrides
		want          string // settings with a value; ~ is the home directory, - marks a setting that the backend does not use
	}{
		"nothing said": {want: `
store.backend=local default
store.dir=~/.local/share/tally default
namespace=default default
base=~/code/project/src/deep/.tally default`},
		"files": {
			user:    "namespace = \"mine\"\n[store]\nsegment = \"64MiB\"\n",
			project: "# it\nnamespace = \"proj\"\n\n[store]\ndir = \"data\"\n",
			want: `
store.backend=local file ~/code/project/tally.toml:5
store.dir=~/code/project/data file ~/code/project/tally.toml:5
store.segment=64MiB file ~/.config/tally/config.toml:3
namespace=proj file ~/code/project/tally.toml:2
base=~/code/project/.tally default`},
		"a file of keys, by its path": {
			env: map[string]string{"TALLY_SECRET_KEY_FILE": "keys"},
			want: `
store.backend=local default
store.dir=~/.local/share/tally default
namespace=default default
base=~/code/project/src/deep/.tally default
secrets.key_file=~/code/project/src/deep/keys variable TALLY_SECRET_KEY_FILE:0`},
		"a key in the place of its file": {
			env: map[string]string{"TALLY_SECRET_KEY_FILE": "k:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
			want: `
store.backend=local default
store.dir=~/.local/share/tally default
namespace=default default
base=~/code/project/src/deep/.tally default
secrets.key_file=(set, not shown) variable TALLY_SECRET_KEY_FILE:0`},
		"flags before variables before files": {
			project: "namespace = \"proj\"\n[store]\ndir = \"data\"\nmin_durability = \"durable\"\n",
			env:     map[string]string{"TALLY_STORE": "/env", "TALLY_NAMESPACE": "env", "TALLY_STORAGE_PATH": "/evals"},
			call:    config.Overrides{Store: "/flag"},
			want: `
store.backend=local flag --store:0
store.dir=/flag flag --store:0
store.min_durability=durable file ~/code/project/tally.toml:4
namespace=env variable TALLY_NAMESPACE:0
base=/evals variable TALLY_STORAGE_PATH:0`},
		"a server of a flag, its secrets of a context and of the nats command": {
			project: "[nats]\nurl = \"nats://old\"\npassword = \"old\"\n",
			context: `{"user":"ann","password":"geheim"}`,
			env:     map[string]string{"NATS_CA": "/ca.pem", "NATS_TOKEN": "geheim"},
			call:    config.Overrides{URL: "nats://bob:geheim@a:4222,tls://geheim@b", Context: "c"},
			want: `
store.backend=nats flag --server:0
-store.dir=~/.local/share/tally default
namespace=default default
nats.url=nats://xxxxx@a:4222,tls://xxxxx@b flag --server:0
nats.context=c flag --context:0
nats.user=ann file ~/.config/nats/context/c.json:0
nats.password=(set, not shown) file ~/.config/nats/context/c.json:0
nats.ca=/ca.pem variable NATS_CA:0
base=~/code/project/.tally default`},
		"the variables of the nats command": {
			env: map[string]string{"NATS_URL": "nats://a", "NATS_JWT": "geheim", "NATS_SEED": "geheim"},
			want: `
store.backend=nats variable NATS_URL:0
-store.dir=~/.local/share/tally default
namespace=default default
nats.url=nats://a variable NATS_URL:0
nats.user_jwt=(set, not shown) variable NATS_JWT:0
nats.user_seed=(set, not shown) variable NATS_SEED:0
base=~/code/project/src/deep/.tally default`},
		"an odd URL keeps its secret": {
			call: config.Overrides{URL: "bob:ge%heim@a:4222"},
			want: `
store.backend=nats flag --server:0
-store.dir=~/.local/share/tally default
namespace=default default
nats.url=xxxxx@a:4222 flag --server:0
base=~/code/project/src/deep/.tally default`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for path, text := range map[string]string{userFile: c.user, projectFile: c.project, contextDir + "c.json": c.context} {
				if text != "" {
					w.write(path, text)
				}
			}
			for name, value := range c.env {
				w.env[name] = value
			}
			got := ""
			for _, s := range w.must(c.call).Settings() {
				if s.Value == "" {
					continue
				}
				line := fmt.Sprintf("%s=%s %s", s.Name, s.Value, s.Origin.Kind)
				if s.Origin.Name != "" {
					line += fmt.Sprintf(" %s:%d", s.Origin.Name, s.Origin.Line)
				}
				if !s.Used {
					line = "-" + line
				}
				got += "\n" + strings.ReplaceAll(line, w.home, "~")
			}
			if got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
			if strings.Contains(got, "heim") {
				t.Error("the output shows a secret")
			}
		})
	}
}
