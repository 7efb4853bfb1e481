package config_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallylog/tally/internal/config"
)

const contextDir = ".config/nats/context/"

// The source of highest precedence names the server, and settings of other servers have no effect. Credentials come
// from one source.
func TestServers(t *testing.T) {
	const prod = `{"url":"nats://prod","user":"ann","password":"secret","ca":"~/ca.pem","creds":"","inbox_prefix":"_PROD","tls_first":true,"color_scheme":"x"}`
	for name, c := range map[string]struct {
		project string
		env     map[string]string
		call    config.Overrides
		want    config.Server // zero if the backend is local
	}{
		"a context in the call": {call: config.Overrides{Context: "prod"},
			want: config.Server{URL: "nats://prod", User: "ann", Password: "secret", CA: "/ca.pem", InboxPrefix: "_PROD", TLSFirst: true}},
		"a context and a url": {call: config.Overrides{Context: "prod", URL: "nats://other"},
			want: config.Server{URL: "nats://other", User: "ann", Password: "secret", CA: "/ca.pem", InboxPrefix: "_PROD"}},
		"a server in the call is another than the project's": {project: "[nats]\ncontext = \"prod\"\n", call: config.Overrides{URL: "nats://other"},
			want: config.Server{URL: "nats://other"}},
		"credentials of the project are not sent elsewhere": {project: "[nats]\nurl = \"nats://a\"\nuser = \"bob\"\npassword = \"x\"\nreplicas = 1\n", env: map[string]string{"TALLY_SERVER": "nats://b"},
			want: config.Server{URL: "nats://b", Replicas: 1}},
		"credentials beside the url": {project: "[store]\nbackend = \"nats\"\n[nats]\nurl = \"nats://a\"\ncreds = \"my.creds\"\n", env: map[string]string{"NATS_USER": "eve"},
			want: config.Server{URL: "nats://a", Creds: "my.creds"}},
		"credentials of the nats command": {call: config.Overrides{URL: "nats://a"}, env: map[string]string{"NATS_CREDS": "/c", "NATS_CA": "/ca", "NATS_CERT": "/cert", "NATS_KEY": "/key"},
			want: config.Server{URL: "nats://a", Creds: "/c", CA: "/ca", Cert: "/cert", Key: "/key"}},
		"the context's count more": {call: config.Overrides{Context: "prod"}, env: map[string]string{"NATS_CREDS": "/c", "NATS_CA": "/ca", "NATS_URL": "nats://n"},
			want: config.Server{URL: "nats://prod", User: "ann", Password: "secret", CA: "/ca.pem", InboxPrefix: "_PROD", TLSFirst: true}},
		"the nats command's server": {env: map[string]string{"NATS_URL": "nats://n", "NATS_USER": "u", "NATS_PASSWORD": "p"},
			want: config.Server{URL: "nats://n", User: "u", Password: "p"}},
		"the nats command's context": {env: map[string]string{"NATS_CONTEXT": "prod"},
			want: config.Server{URL: "nats://prod", User: "ann", Password: "secret", CA: "/ca.pem", InboxPrefix: "_PROD", TLSFirst: true}},
		"a local project beside the nats command's server":  {project: "[store]\nbackend = \"local\"\n", env: map[string]string{"NATS_URL": "nats://n"}},
		"a local store beside the nats command's server":    {project: "[store]\ndir = \"x\"\n", env: map[string]string{"NATS_URL": "nats://n"}},
		"a store in the call beside a server of a variable": {call: config.Overrides{Store: "/x"}, env: map[string]string{"TALLY_CONTEXT": "prod", "NATS_URL": "nats://n"}},
		"the selected context, if no server is named": {env: map[string]string{"TALLY_BACKEND": "nats"},
			want: config.Server{URL: "nats://selected", Token: "t", NKey: "/etc/n.nk"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write(projectFile, c.project)
			w.write(contextDir+"prod.json", prod)
			w.write(contextDir+"selected.json", `{"url":"nats://selected","token":"t","nkey":"file:///$ETC/n.nk"}`)
			w.write(".config/nats/context.txt", "selected\n")
			w.env["ETC"] = "etc"
			for name, value := range c.env {
				w.env[name] = value
			}
			backend := config.NATS
			if c.want == (config.Server{}) {
				backend = config.Local
			}
			if c.want.CA == "/ca.pem" {
				c.want.CA = w.home + c.want.CA
			}
			if creds := c.want.Creds; creds != "" && !filepath.IsAbs(creds) {
				c.want.Creds = filepath.Join(w.project, creds)
			}
			got := w.must(c.call)
			if diff := cmp.Diff(c.want, got.Server); diff != "" || got.Backend != backend {
				t.Errorf("the backend is %s, the server differs:\n%s", got.Backend, diff)
			}
		})
	}
}

// The system context sets only the credentials of the system account.
func TestSystemContext(t *testing.T) {
	w := newWorld(t)
	w.write(projectFile, "[store]\nbackend = \"nats\"\n[nats]\nurl = \"nats://a\"\nsystem_context = \"sys\"\n")
	w.write(contextDir+"sys.json", `{"user":"sys","password":"p"}`)
	if got := w.must(config.Overrides{}).Server; got.System == nil || got.System.User != "sys" || got.User != "" {
		t.Errorf("got %+v", got)
	}
}

// An unusable context is an error with its position.
func TestContextErrors(t *testing.T) {
	for name, c := range map[string]struct {
		context, content string
		file, field      string // of the error; "" means the file of the context
	}{
		"missing":            {context: "nope", file: "call", field: "nats.context"},
		"no name":            {context: "../prod", file: "call", field: "nats.context"},
		"no JSON":            {context: "c", content: "{"},
		"another domain":     {context: "c", content: `{"url":"nats://x","jetstream_domain":"hub"}`, field: "jetstream_domain"},
		"a proxy":            {context: "c", content: `{"socks_proxy":"socks5://x"}`, field: "socks_proxy"},
		"a secret elsewhere": {context: "c", content: `{"creds":"op://vault/item"}`, field: "creds"},
		"without a url":      {context: "c", content: `{}`, file: "call", field: "nats.url"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			path := filepath.Join(w.home, contextDir, "c.json")
			if c.content != "" {
				w.write(contextDir+"c.json", c.content)
			}
			if c.file == "" {
				c.file = path
			}
			_, err := w.resolve(config.Overrides{Context: c.context})
			wrong, ok := errors.AsType[*config.Error](err)
			if !ok || wrong.File != c.file || wrong.Field != c.field || wrong.Reason == "" {
				t.Errorf("%+v, want %s in %s", err, c.field, c.file)
			}
		})
	}
}
