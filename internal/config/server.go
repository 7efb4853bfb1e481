package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Server is how to connect to a NATS server. JSON names are those of a context of the nats command.
type Server struct {
	URL         string `json:"url"` // one or more, separated by commas
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"` // path of a file with a JWT and its seed
	NKey        string `json:"nkey"`  // path of a file with a seed
	JWT         string `json:"user_jwt"`
	Seed        string `json:"user_seed"`
	CA          string `json:"ca"`   // path
	Cert        string `json:"cert"` // path, like Key
	Key         string `json:"key"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"` // the TLS handshake precedes the server's INFO

	// System is the connection to the server's system account, or nil.
	System *Server `json:"-"`

	Replicas int `json:"-"` // replicas of new streams; 0: as many as the server can keep
}

// foreignVariables are the variables of the nats command. They apply where tally's own settings have no value.
var foreignVariables = map[string]string{
	"url": "NATS_URL", "context": "NATS_CONTEXT", "user": "NATS_USER", "password": "NATS_PASSWORD", "token": "NATS_TOKEN",
	"creds": "NATS_CREDS", "nkey": "NATS_NKEY", "jwt": "NATS_JWT", "seed": "NATS_SEED", "ca": "NATS_CA", "cert": "NATS_CERT", "key": "NATS_KEY",
}

// takeForeign applies the server in the variables of the nats command, if no other setting names a server. It selects
// the backend nats only if the backend is not set.
func (c *Config) takeForeign(getenv func(string) string) {
	if c.said["url"] != "" || c.said["context"] != "" {
		return
	}
	for _, name := range []string{"url", "context"} {
		value := getenv(foreignVariables[name])
		if value == "" {
			continue
		}
		c.said[name], c.origins[name] = value, origin{name: foreignVariables[name]}
		if c.origins["backend"].name == "default" {
			c.said["backend"], c.origins["backend"] = NATS, c.origins[name]
		}
	}
}

// fillNATS collects the settings of the connection: tally's own, then the context, then the variables of the nats
// command. Credentials come from one source as a whole, never in parts from several.
func (c *Config) fillNATS(getenv func(string) string) error {
	s := serverOf(c.said)
	s.Replicas, _ = strconv.Atoi(c.said["replicas"]) // validated before, or ""
	name := c.said["context"]
	if name == "" && s.URL == "" {
		name = selectedContext(getenv)
		c.origins["context"] = c.origins["backend"]
	}
	if name != "" {
		at, err := c.context("context", name, getenv)
		if err != nil {
			return err
		}
		c.said["context"] = name
		c.fillServer(&s, at, func(string) origin { return origin{name: contextPath(name, getenv)} })
	}
	if s.URL == "" {
		at := c.origins["backend"]
		return &Error{at.name, at.line, "nats.url",
			"the backend nats needs a server: --server, --context, or a section [nats] with url or context"}
	}
	foreign := make(map[string]string)
	for name, variable := range foreignVariables {
		foreign[name] = getenv(variable)
	}
	c.fillServer(&s, serverOf(foreign), func(name string) origin { return origin{name: foreignVariables[name]} })
	if system := c.said["system_context"]; system != "" {
		at, err := c.context("system_context", system, getenv)
		if err != nil {
			return err
		}
		s.System = &at
	}
	c.Server = s
	return nil
}

func serverOf(said map[string]string) Server {
	return Server{URL: said["url"], User: said["user"], Password: said["password"], Token: said["token"], Creds: said["creds"], NKey: said["nkey"],
		JWT: said["jwt"], Seed: said["seed"], CA: said["ca"], Cert: said["cert"], Key: said["key"], InboxPrefix: said["inbox_prefix"]}
}

// said is the inverse of serverOf.
func (s Server) said() map[string]string {
	return map[string]string{"url": s.URL, "user": s.User, "password": s.Password, "token": s.Token, "creds": s.Creds, "nkey": s.NKey,
		"jwt": s.JWT, "seed": s.Seed, "ca": s.CA, "cert": s.Cert, "key": s.Key, "inbox_prefix": s.InboxPrefix}
}

// fillServer fills empty fields of s from another server, and records the origin of each.
func (c *Config) fillServer(s *Server, from Server, at func(setting string) origin) {
	before := s.said()
	s.fill(from)
	for name, value := range s.said() {
		if value != before[name] {
			c.said[name], c.origins[name] = value, at(name)
		}
	}
}

// fill fills empty fields of s from another server.
func (s *Server) fill(from Server) {
	if s.URL == "" {
		s.URL, s.TLSFirst = from.URL, from.TLSFirst
	}
	if s.User+s.Token+s.Creds+s.NKey+s.JWT == "" {
		s.User, s.Password, s.Token, s.Creds, s.NKey, s.JWT, s.Seed = from.User, from.Password, from.Token, from.Creds, from.NKey, from.JWT, from.Seed
	}
	s.CA, s.InboxPrefix = cmp.Or(s.CA, from.CA), cmp.Or(s.InboxPrefix, from.InboxPrefix)
	if s.Cert == "" {
		s.Cert, s.Key = from.Cert, from.Key
	}
}

// contextFile is a context of the nats command. Other members do not matter here.
type contextFile struct {
	Server

	// These change the connection. Ignoring them would connect to the wrong place.
	NSC       string `json:"nsc"`
	Proxy     string `json:"socks_proxy"`
	Domain    string `json:"jetstream_domain"`
	APIPrefix string `json:"jetstream_api_prefix"`
	CertStore string `json:"windows_cert_store"`
}

// context reads the context of the nats command that a setting names.
func (c *Config) context(setting, name string, getenv func(string) string) (Server, error) {
	if name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		return Server{}, c.wrong(setting, "%q is not a name of a context", name)
	}
	path := contextPath(name, getenv)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Server{}, c.wrong(setting, "there is no context %q: %s is missing", name, path)
	}
	if err != nil {
		return Server{}, &Error{File: path, Reason: err.Error()}
	}
	var f contextFile
	if err := json.Unmarshal(text, &f); err != nil {
		return Server{}, &Error{File: path, Reason: err.Error()}
	}
	return f.server(path, getenv)
}

func contextPath(name string, getenv func(string) string) string {
	return filepath.Join(configHome(getenv), "nats", "context", name+".json")
}

func (f contextFile) server(name string, getenv func(string) string) (Server, error) {
	for field, value := range map[string]string{"nsc": f.NSC, "socks_proxy": f.Proxy, "jetstream_domain": f.Domain,
		"jetstream_api_prefix": f.APIPrefix, "windows_cert_store": f.CertStore} {
		if value != "" {
			return Server{}, &Error{File: name, Field: field, Reason: "is not supported here"}
		}
	}
	for field, path := range map[string]*string{"creds": &f.Creds, "nkey": &f.NKey, "ca": &f.CA, "cert": &f.Cert, "key": &f.Key} {
		value := strings.TrimPrefix(*path, "file://")
		if strings.Contains(value, "://") || strings.HasPrefix(value, "data:") {
			return Server{}, &Error{File: name, Field: field, Reason: "is not a path of a file, which is all that is supported here"}
		}
		*path = expand(value, getenv)
	}
	return f.Server, nil
}

// selectedContext returns the context that the nats command uses by default, or "".
func selectedContext(getenv func(string) string) string {
	text, err := os.ReadFile(filepath.Join(configHome(getenv), "nats", "context.txt"))
	if err != nil {
		return "" // not an error: the server may be named elsewhere, and the caller checks that
	}
	return strings.TrimSpace(string(text))
}

// expand replaces variables, and ~ at the beginning of a path.
func expand(path string, getenv func(string) string) string {
	path = os.Expand(path, getenv)
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		return getenv("HOME") + rest
	}
	return path
}
