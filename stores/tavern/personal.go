package tavern

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallylog/tally"
	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
	"github.com/tallylog/tally/projector"
)

// kindSetting is the kind of documents of the personal layer.
const kindSetting = "setting"

// Names of settings. Names that begin with reservedKeys have methods of their own.
const (
	reservedKeys      = "com.tavern."
	agentsSetting     = "com.tavern.agents"
	windowSetting     = "com.tavern.window."
	permissionSetting = "com.tavern.permissionMode"
	modelsSetting     = "com.tavern.models"
)

// Personal is a handle on one person's settings on their machine: ids of the vendor's sessions by project and by agent,
// the list of agents, positions of windows, the permission mode, default models, and any values that a program keeps by
// key.
//
// Each setting is a document setting/<key> in the namespace [events.PersonalNamespace] of a store that only this person
// can reach. On a store that others can reach, each method returns an *events.PersonalError, and reads or writes
// nothing. No export of the project has settings.
//
// If a setting is missing, the error is [tally.ErrNotFound].
type Personal struct{ st *tally.Store }

// PersonalOf returns a handle on the settings in a person's own store. The namespace of st does not matter.
func PersonalOf(st *tally.Store) *Personal { return &Personal{st} }

// documents returns the settings, or an error if others can reach the store.
func (p *Personal) documents() (*tally.Documents, error) {
	if p.st.Log.Shared() {
		return nil, &events.PersonalError{Where: "a store that others can reach"}
	}
	st, err := p.st.In(events.PersonalNamespace)
	if err != nil {
		return nil, err
	}
	return st.Documents(), nil
}

// SettingError reports that a setting exists and cannot be parsed. It stays as it is.
type SettingError struct {
	Key string
	Err error
}

func (e *SettingError) Error() string { return fmt.Sprintf("setting %q: %v", e.Key, e.Err) }

// Unwrap returns why the setting cannot be parsed.
func (e *SettingError) Unwrap() error { return e.Err }

// get reads a setting into v.
func (p *Personal) get(ctx context.Context, key string, v any) error {
	d, err := p.documents()
	if err != nil {
		return err
	}
	doc, err := d.Read(ctx, kindSetting, key)
	if err != nil {
		return err
	}
	if doc.Erased != "" {
		return fmt.Errorf("setting %q: %w", key, &events.ErasedError{Offset: doc.Offset, Receipt: doc.Erased})
	}
	return parseSetting(key, doc.Data, v)
}

func parseSetting(key string, data []byte, v any) error {
	if err := rawjson.Unmarshal(data, v); err != nil {
		return &SettingError{key, err}
	}
	return nil
}

// set writes a setting.
func (p *Personal) set(ctx context.Context, key string, v any) error {
	d, err := p.documents()
	if err != nil {
		return err
	}
	w, err := settingWrite(v)
	if err != nil {
		return err
	}
	return d.Tx(ctx, func(tx *tally.Tx) error { return tx.Save(ctx, kindSetting, key, w) })
}

// settingWrite returns a setting as a document.
func settingWrite(v any) (tally.Write, error) {
	data, err := rawjson.Marshal(v)
	return tally.Write{Data: data, ContentType: "application/json", Layer: string(LayerPersonal)}, err
}

// remove deletes a setting. If it does not exist, nothing is written.
func (p *Personal) remove(ctx context.Context, key string) error {
	d, err := p.documents()
	if err == nil {
		_, err = d.Delete(ctx, kindSetting, key, 0, "cleared")
	}
	if errors.Is(err, tally.ErrNotFound) {
		return nil
	}
	return err
}

// Setting returns the value of a program's key: JSON, byte for byte.
func (p *Personal) Setting(ctx context.Context, key string) (events.Raw, error) {
	var raw events.Raw
	err := p.get(ctx, key, &raw)
	return raw, err
}

// SetSetting sets the JSON value of a key. A key that begins with "com.tavern." belongs to another method, and the
// error is *events.InvalidError.
func (p *Personal) SetSetting(ctx context.Context, key string, value events.Raw) error {
	if err := freeKey(key); err != nil {
		return err
	}
	if err := rawjson.Check(value); err != nil {
		return &events.InvalidError{Field: "value", Reason: err.Error()}
	}
	return p.set(ctx, key, value)
}

// ClearSetting deletes the value of a key.
func (p *Personal) ClearSetting(ctx context.Context, key string) error {
	if err := freeKey(key); err != nil {
		return err
	}
	return p.remove(ctx, key)
}

func freeKey(key string) error {
	if strings.HasPrefix(key, reservedKeys) {
		return &events.InvalidError{Field: "key", Reason: fmt.Sprintf("%q has a method of its own", key)}
	}
	return nil
}

// Keys lists the keys of all settings, sorted.
func (p *Personal) Keys(ctx context.Context) ([]string, error) { return p.keys(ctx, "") }

func (p *Personal) keys(ctx context.Context, prefix string) ([]string, error) {
	d, err := p.documents()
	if err != nil {
		return nil, err
	}
	list, _, err := d.List(ctx, projector.DocumentQuery{Kind: kindSetting, Prefix: prefix})
	keys := make([]string, len(list))
	for i, doc := range list {
		keys[i] = doc.Subject.ID
	}
	return keys, err
}

// sessionOf is the value of a setting with a session.
type sessionOf struct {
	Session string `json:"session"`
	Path    string `json:"path,omitempty"` // of the project, if it is too long for the setting's key
}

// ProjectSession is the session of a project.
type ProjectSession struct {
	Path    string // the project
	Session string // the vendor's id
}

// Key returns the name under which the session is shown.
func (s ProjectSession) Key() string { return ProjectKey(s.Path) }

// SetProjectSession sets the id of a project's session. The path identifies the project byte for byte: another project
// with the same key keeps its own session.
func (p *Personal) SetProjectSession(ctx context.Context, path, session string) error {
	key, err := keyOfProject(path)
	if err == nil {
		err = checkSessionID(session)
	}
	if err != nil {
		return err
	}
	s := sessionOf{Session: session}
	if key != projectSetting+path {
		s.Path = path
	}
	return p.set(ctx, key, s)
}

func checkSessionID(id string) error {
	if id == "" || !utf8.ValidString(id) {
		return &events.InvalidError{Field: "session", Reason: fmt.Sprintf("%q is not the id of a session", id)}
	}
	return nil
}

// hashedPath replaces a path that is too long for a key, with its hash behind it.
const hashedPath = "sha256:"

// keyOfProject returns the key of a project's setting. Unlike [ProjectKey], only this project has it.
func keyOfProject(path string) (string, error) {
	switch {
	case path == "":
		return "", &events.InvalidError{Field: "path", Reason: "it is empty"}
	case len(projectSetting)+len(path) <= events.MaxIDLen && !strings.HasPrefix(path, hashedPath):
		return projectSetting + path, nil
	case !utf8.ValidString(path):
		return "", &events.InvalidError{Field: "path", Reason: fmt.Sprintf("its %d bytes are not UTF-8: a path of that length must be UTF-8", len(path))}
	}
	sum := sha256.Sum256([]byte(path))
	return projectSetting + hashedPath + hex.EncodeToString(sum[:]), nil
}

// ProjectSession returns the id of a project's session.
func (p *Personal) ProjectSession(ctx context.Context, path string) (string, error) {
	key, err := keyOfProject(path)
	if err != nil {
		return "", err
	}
	var s sessionOf
	err = p.get(ctx, key, &s)
	return s.Session, err
}

// ClearProjectSession deletes a project's session.
func (p *Personal) ClearProjectSession(ctx context.Context, path string) error {
	key, err := keyOfProject(path)
	if err != nil {
		return err
	}
	return p.remove(ctx, key)
}

// ProjectSessions lists the sessions of all projects, sorted by path.
func (p *Personal) ProjectSessions(ctx context.Context) ([]ProjectSession, error) {
	keys, err := p.keys(ctx, projectSetting)
	if err != nil {
		return nil, err
	}
	var list []ProjectSession
	for _, key := range keys {
		var s sessionOf
		if err := p.get(ctx, key, &s); errors.Is(err, tally.ErrNotFound) {
			continue // cleared meanwhile
		} else if err != nil {
			return nil, err
		}
		if s.Path == "" {
			s.Path = strings.TrimPrefix(key, projectSetting)
		}
		list = append(list, ProjectSession{s.Path, s.Session})
	}
	slices.SortFunc(list, func(a, b ProjectSession) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

// ProjectByKey returns the project whose session is shown under a key, as [ProjectKey] returns it. If several projects
// have the key, the error is *AmbiguousError: use the path.
func (p *Personal) ProjectByKey(ctx context.Context, key string) (ProjectSession, error) {
	all, err := p.ProjectSessions(ctx)
	if err != nil {
		return ProjectSession{}, err
	}
	found := slices.DeleteFunc(all, func(s ProjectSession) bool { return s.Key() != key })
	switch len(found) {
	case 0:
		return ProjectSession{}, fmt.Errorf("key %q: %w", key, tally.ErrNotFound)
	case 1:
		return found[0], nil
	}
	e := &AmbiguousError{Key: key}
	for _, s := range found {
		e.Paths = append(e.Paths, s.Path)
	}
	return ProjectSession{}, e
}

// SetAgentSession sets the id of an agent's session, by the agent's id.
func (p *Personal) SetAgentSession(ctx context.Context, agent, session string) error {
	if err := checkSessionID(session); err != nil {
		return err
	}
	return p.set(ctx, AgentKey(agent), sessionOf{Session: session})
}

// AgentSession returns the id of an agent's session.
func (p *Personal) AgentSession(ctx context.Context, agent string) (string, error) {
	var s sessionOf
	err := p.get(ctx, AgentKey(agent), &s)
	return s.Session, err
}

// ClearAgentSession deletes an agent's session.
func (p *Personal) ClearAgentSession(ctx context.Context, agent string) error {
	return p.remove(ctx, AgentKey(agent))
}

// ClearSessions deletes the sessions of all projects and agents.
func (p *Personal) ClearSessions(ctx context.Context) error {
	for _, prefix := range []string{projectSetting, agentSetting} {
		keys, err := p.keys(ctx, prefix)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := p.remove(ctx, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Window is the position of a window, in points.
type Window struct {
	X       float64       `json:"x"`
	Y       float64       `json:"y"`
	Width   float64       `json:"width"`
	Height  float64       `json:"height"`
	Unknown events.Fields `json:",unknown"`
}

// SetWindow sets the position of a window, by its name.
func (p *Personal) SetWindow(ctx context.Context, name string, w Window) error {
	return p.set(ctx, windowSetting+name, w)
}

// Window returns the last position of a window.
func (p *Personal) Window(ctx context.Context, name string) (Window, error) {
	var w Window
	err := p.get(ctx, windowSetting+name, &w)
	return w, err
}

// PermissionModes are the modes in which an agent may act without asking.
var PermissionModes = []string{"normal", "acceptEdits", "plan", "bypassPermissions", "dontAsk"}

// SetPermissionMode sets one of [PermissionModes].
func (p *Personal) SetPermissionMode(ctx context.Context, mode string) error {
	if !slices.Contains(PermissionModes, mode) {
		return &events.InvalidError{Field: "permissionMode", Reason: fmt.Sprintf("%q: want one of %q", mode, PermissionModes)}
	}
	return p.set(ctx, permissionSetting, mode)
}

// PermissionMode returns the permission mode of agents.
func (p *Personal) PermissionMode(ctx context.Context) (mode string, err error) {
	err = p.get(ctx, permissionSetting, &mode)
	return mode, err
}

// Models are the default settings of new agents.
type Models struct {
	Model          string        `json:"modelId,omitempty"`
	ThinkingBudget int64         `json:"thinkingBudget,omitempty"` // tokens
	EffortLevel    string        `json:"effortLevel,omitempty"`    // low, medium, high or max
	Unknown        events.Fields `json:",unknown"`
}

// SetModels sets the default settings of new agents.
func (p *Personal) SetModels(ctx context.Context, m Models) error {
	return p.set(ctx, modelsSetting, m)
}

// Models returns the default settings of new agents.
func (p *Personal) Models(ctx context.Context) (m Models, err error) {
	err = p.get(ctx, modelsSetting, &m)
	return m, err
}
