package prices

import (
	"regexp"
	"strings"
)

// modelName is the name of a model, as sellers spell it.
type modelName struct {
	spelled []string // names to look up, in this order: as written, without the seller, without the date of the snapshot
	region  string   // region in the name, or ""
}

// makers maps the names of makers, which may precede a model's name, to prefixes of their models' names.
var makers = map[string][]string{
	"anthropic": {"claude-"},
	"google":    {"gemini-"},
	"gemini":    {"gemini-"},
	"openai":    {"gpt-", "o1", "o3", "o4", "codex-", "chatgpt-"},
}

// sellers are names that may precede the name of the maker or of the model. Their prices are those of the maker.
var sellers = map[string]bool{"openrouter": true, "bedrock": true, "converse": true, "vertex_ai": true, "publishers": true, "models": true}

var (
	// Amazon Bedrock: us.anthropic.claude-sonnet-4-5-20250929-v1:0, also after the ARN of a profile.
	ofBedrock = regexp.MustCompile(`^(?:arn:aws[a-z-]*:bedrock:[^/]*/)?(?:(us|us-gov|eu|apac|jp|au|ca|global)\.)?anthropic\.(claude-[a-z0-9.-]+?)(?:-v[0-9]+(?::[0-9]+)?)?$`)
	// Google Cloud: claude-sonnet-4-5@20250929, also after the path of a project.
	ofVertex  = regexp.MustCompile(`^(claude-[a-z0-9.-]+)@(default|latest|20[0-9]{6})$`)
	ofProject = regexp.MustCompile(`^projects/[^/]+/locations/([^/]+)/publishers/`)
	// OpenRouter: claude-opus-4.1, also with the way in which it is asked.
	dotted = regexp.MustCompile(`([0-9])\.([0-9])`)
	asked  = regexp.MustCompile(`(:thinking|:beta|\[1m\])$`)
	// The date of a snapshot: -20250929 or -2025-08-07. Gemini numbers snapshots.
	dated    = regexp.MustCompile(`^(.+)-20[0-9]{2}-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12][0-9]|3[01])$`)
	numbered = regexp.MustCompile(`^(gemini-.+)-00[0-9]$`)
)

// nameOf returns the names to look up for a model. It never includes a name that merely begins like another model's.
func nameOf(model string) modelName {
	n := modelName{spelled: []string{model}}
	sold := n.unsold(model)
	n.add(sold)
	for _, snapshot := range []*regexp.Regexp{dated, numbered} {
		if m := snapshot.FindStringSubmatch(sold); m != nil {
			n.add(m[1])
		}
	}
	if family, ok := strings.CutSuffix(sold, "-latest"); ok && strings.HasPrefix(sold, "claude-") {
		n.add(family)
	}
	return n
}

func (n *modelName) add(model string) {
	for _, have := range n.spelled {
		if have == model {
			return
		}
	}
	n.spelled = append(n.spelled, model)
}

// unsold removes the additions of a seller from a name.
func (n *modelName) unsold(model string) string {
	if m := ofProject.FindStringSubmatch(model); m != nil {
		n.region, model = regionOf(m[1]), model[strings.Index(model, "publishers/"):]
	}
	model = withoutSellers(model)
	model = asked.ReplaceAllString(model, "")
	if m := ofBedrock.FindStringSubmatch(model); m != nil {
		n.region, model = regionOf(m[1]), m[2]
	}
	if m := ofVertex.FindStringSubmatch(model); m != nil {
		if model = m[1]; m[2] != "default" && m[2] != "latest" {
			model += "-" + m[2]
		}
	}
	if strings.HasPrefix(model, "claude-") {
		model = dotted.ReplaceAllString(model, "$1-$2")
	}
	return model
}

// withoutSellers removes names of sellers and makers from the beginning of a path.
func withoutSellers(model string) string {
	for {
		first, rest, ok := strings.Cut(model, "/")
		if !ok || !sellers[first] && !makes(first, rest) {
			return model
		}
		model = rest
	}
}

// makes reports whether a model, or a path that ends with it, is from a maker.
func makes(maker, path string) bool {
	model := path[strings.LastIndexByte(path, '/')+1:]
	for _, begin := range makers[maker] {
		if strings.HasPrefix(model, begin) {
			return true
		}
	}
	return false
}

// regionOf returns the region of a seller, or "" if it means all regions.
func regionOf(text string) string {
	if text == "global" {
		return ""
	}
	return text
}
