package redact

import (
	"slices"
	"strings"
	"sync"
)

// A Rule is a built-in rule.
type Rule struct {
	Name   string   // as in the mark
	Finds  string   // owner or kind of the secret
	Shapes []string // regular expressions, in which a group is the replaced part of a match, or a sentence
	Origin string   // source of the shape
}

// Rules returns the rules of the package, in the order of docs/redaction.md.
func Rules() []Rule {
	var list []Rule
	for _, r := range builtin() {
		list = append(list, Rule{r.name, r.finds, r.says, r.origin})
	}
	return list
}

// A ruleDef has shapes, a func that examines a position, or a func that searches a whole text.
type ruleDef struct {
	id                  int // index among the package's rules
	name, finds, origin string
	says                []string // its shapes for documentation
	words               []string // every match contains one of them
	shapes              []shape
	detect              func(t *reader, i int) match // examines position i, where one of the words is, in any case
	search              func(text []byte) [][2]int
	random              func(secret []byte) bool // nil: any text of the shape
}

// match examines a position of a text with one of the words.
func (r *ruleDef) match(t *reader, i int) (m match) {
	if r.detect != nil {
		return r.detect(t, i)
	}
	for n := range r.shapes {
		s := &r.shapes[n]
		if commonFold(t.text[i:], s.word) < len(s.word) {
			continue
		}
		one := s.match(t, i)
		one.ok = one.ok && t.judge(r, one.from, one.to)
		if one.deeper = one.deeper || m.deeper; one.ok {
			return one
		}
		m.deeper = one.deeper
	}
	return m
}

// tokens makes a rule from shapes.
func tokens(name, finds, origin string, random func([]byte) bool, shapes ...string) *ruleDef {
	r := &ruleDef{name: name, finds: finds, origin: origin, random: random}
	for _, text := range shapes {
		each, says := expand(text)
		r.says = append(r.says, strings.ReplaceAll(says, gap, "…"))
		for _, one := range each {
			s := mustShape(one)
			r.shapes = append(r.shapes, s)
			if !slices.Contains(r.words, s.word) {
				r.words = append(r.words, s.word)
			}
		}
	}
	return r
}

// detector makes a rule from a func.
func detector(name, finds, origin string, detect func(*reader, int) match, says string, words ...string) *ruleDef {
	return &ruleDef{name: name, finds: finds, origin: origin, says: []string{says}, words: words, detect: detect}
}

// expand expands <a|b> in a shape to one shape with a and one with b, and returns a combined form for documentation.
func expand(text string) (shapes []string, says string) {
	before, rest, ok := strings.Cut(text, "<")
	words, after, _ := strings.Cut(rest, ">")
	if !ok || strings.ContainsAny(words, `[]\`) {
		return []string{text}, text
	}
	for _, w := range strings.Split(words, "|") {
		shapes = append(shapes, before+w+after)
	}
	return shapes, before + "(?:" + words + ")" + after
}

// gap separates a name and its value, in an assignment, a header, JSON, or a list of arguments. Documentation shows it
// as an ellipsis.
const gap = `["'\x60\s:=\[,\\]{1,16}`

// gitleaks names the source of a shape that its vendor does not document well.
func gitleaks(id string) string { return "gitleaks, `" + id + "`" }

// builtin returns all rules. They are created at the first search, because most runs of a program do not search.
var builtin = sync.OnceValue(func() []*ruleDef { return numbered(append(append(models(), services()...), general()...)) })

// named is the number of rules at the end of builtin that depend on a name alone.
const named = 2

// numbered numbers rules, and the parts of their shapes that may be long.
func numbered(rules []*ruleDef) []*ruleDef {
	id := bareValue.id
	for i, r := range rules {
		r.id = i
		for _, s := range r.shapes {
			for n := range s.after {
				if p := &s.after[n]; p.class != nil && p.max > longRun {
					id++
					p.id = id
				}
			}
		}
	}
	return rules
}

// models returns the rules for model vendors and services that agents use.
func models() []*ruleDef {
	return []*ruleDef{
		tokens("anthropic", "Anthropic", gitleaks("anthropic-api-key"), mixed, `sk-ant-[A-Za-z0-9_-]{32,256}`),
		tokens("openai", "OpenAI, and who took over its form (DeepSeek, Moonshot)", gitleaks("openai-api-key"), mixed,
			`sk-[A-Za-z0-9]{32,128}`, `sk-proj-[A-Za-z0-9_-]{20,256}`, `sk-svcacct-[A-Za-z0-9_-]{20,256}`, `sk-admin-[A-Za-z0-9_-]{20,256}`),
		tokens("openrouter", "OpenRouter", "https://openrouter.ai/docs/api-reference/authentication", varied, `sk-or-v1-[0-9a-f]{64}`),
		tokens("google-api-key", "Google and Gemini", gitleaks("gcp-api-key"), varied, `AIza[A-Za-z0-9_-]{35}`),
		tokens("google-oauth", "Google: client secrets, access and refresh tokens", "https://developers.google.com/identity/protocols/oauth2", varied,
			`GOCSPX-[A-Za-z0-9_-]{28}`, `ya29\.[A-Za-z0-9_-]{30,}`, `1//0[A-Za-z0-9_-]{40,200}`),
		tokens("groq", "Groq", "https://console.groq.com/docs/quickstart", varied, `gsk_[A-Za-z0-9]{52}`),
		tokens("xai", "xAI", "https://docs.x.ai/docs/tutorial", varied, `xai-[A-Za-z0-9]{80}`),
		tokens("perplexity", "Perplexity", gitleaks("perplexity-api-key"), varied, `pplx-[A-Za-z0-9]{48}`),
		tokens("replicate", "Replicate", "https://replicate.com/docs/topics/security/api-tokens", varied, `r8_[A-Za-z0-9]{37}`),
		tokens("huggingface", "Hugging Face", gitleaks("huggingface-access-token"), varied, `hf_[A-Za-z0-9]{34,40}`, `api_org_[A-Za-z]{34}`),
	}
}

// services returns the rules for other tokens that identify their owner.
func services() []*ruleDef {
	return []*ruleDef{
		tokens("github", "GitHub", "https://github.blog/engineering/behind-githubs-new-authentication-token-formats/", varied,
			`<ghp|gho|ghu|ghs|ghr>_[A-Za-z0-9]{36,255}`, `github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}`),
		tokens("gitlab", "GitLab", "https://docs.gitlab.com/security/tokens/#token-prefixes", varied,
			`glpat-[A-Za-z0-9_-]{20,300}\.[0-9a-z]{2}\.[0-9a-z]{9}`, `glpat-[A-Za-z0-9_-]{20,300}\.[0-9a-z]{9}`,
			`<glpat|gldt|glrt|glrtr|glcbt|glptt|glft|glimt|glagent|gloas|glsoat|glffct>-[A-Za-z0-9_-]{20,300}`),
		tokens("atlassian", "Atlassian", gitleaks("atlassian-api-token"), varied, `ATATT3[A-Za-z0-9_=-]{60,300}`, `ATCTT3[A-Za-z0-9_=-]{60,300}`),
		tokens("slack", "Slack", "https://docs.slack.dev/authentication/tokens/", mixed,
			`<xoxb|xoxp|xoxa|xoxr|xoxs|xoxo|xoxe|xoxc|xoxd>-[A-Za-z0-9-]{20,255}`, `xapp-[0-9]-[A-Za-z0-9-]{20,255}`),
		tokens("slack-webhook", "Slack: the path of an incoming webhook", "https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/", nil,
			`hooks\.slack\.com/services/(T[A-Za-z0-9]{8,12}/B[A-Za-z0-9]{8,12}/[A-Za-z0-9]{24})`,
			`hooks\.slack\.com/workflows/([A-Za-z0-9/]{40,80})`, `hooks\.slack\.com/triggers/([A-Za-z0-9/]{40,80})`),
		tokens("discord", "Discord: bot tokens that are named, webhooks", "https://docs.discord.com/developers/reference#authentication", nil,
			`(?i:<discord_token|discord_bot_token|bot_token>)`+gap+`([MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})`,
			`discord\.com/api/webhooks/[0-9]{17,20}/([A-Za-z0-9_-]{60,80})`, `discordapp\.com/api/webhooks/[0-9]{17,20}/([A-Za-z0-9_-]{60,80})`),
		tokens("telegram", "Telegram bots", "https://core.telegram.org/bots/api#authorizing-your-bot", varied, `[0-9]{8,10}:AA[A-Za-z0-9_-]{33}`),
		tokens("aws-access-key", "AWS: ids of access keys", "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html", varied,
			`<AKIA|ASIA|ABIA|ACCA>[A-Z0-9]{16}`),
		tokens("aws-secret-key", "AWS: secret keys by their name", "https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html", mixed,
			`(?i:<secret_access_key|secretaccesskey|secret-access-key|aws_secret_key>)`+gap+`([A-Za-z0-9/+]{40})`),
		detector("aws-secret-key", "AWS: secret keys behind the id of an access key", "the same", besideAccessKey,
			"40 of `A-Za-z0-9/+` that stand alone, in upper and lower case with digits, up to 100 bytes behind the id", "AKIA", "ASIA"),
		tokens("aws-session-token", "AWS: session tokens by their name", "the same", mixed,
			`(?i:<session_token|sessiontoken|security_token|x-amz-security-token>)`+gap+`([A-Za-z0-9/+=]{100,})`),
		tokens("aws-bedrock", "AWS Bedrock", gitleaks("aws-amazon-bedrock-api-key-long-lived"), mixed, `ABSK[A-Za-z0-9+/]{109,269}={0,2}`),
		tokens("azure-storage", "Azure: keys in connection strings", "https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string", mixed,
			`AccountKey=([A-Za-z0-9+/]{86}==)`, `SharedAccessKey=([A-Za-z0-9+/]{43}=)`),
		tokens("azure-client-secret", "Azure: client secrets of apps", gitleaks("azure-ad-client-secret"), mixed,
			`[a-zA-Z0-9_~.]{3}[0-9]Q~[a-zA-Z0-9_~.-]{31,34}`),
		tokens("stripe", "Stripe", "https://docs.stripe.com/keys", varied,
			`<sk_live|rk_live|sk_test|rk_test|sk_prod|rk_prod>_[A-Za-z0-9]{16,247}`, `whsec_[A-Za-z0-9+/]{32,64}`),
		tokens("npm", "npm", "https://github.blog/changelog/2021-09-23-npm-has-a-new-access-token-format/", varied,
			`npm_[A-Za-z0-9]{36}`, `:_authToken=([A-Za-z0-9_-]{20,200})`),
		tokens("pypi", "PyPI", "https://pypi.org/help/#apitoken", varied, `pypi-[A-Za-z0-9_-]{50,1000}`),
		tokens("rubygems", "RubyGems", gitleaks("rubygems-api-token"), varied, `rubygems_[a-f0-9]{48}`),
		tokens("sendgrid", "SendGrid", gitleaks("sendgrid-api-token"), mixed, `SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}`),
		tokens("brevo", "Brevo", gitleaks("sendinblue-api-token"), varied, `xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}`),
		tokens("mailchimp", "Mailchimp", gitleaks("mailchimp-api-key"), varied, `[a-f0-9]{32}-us[0-9]{1,2}`),
		tokens("twilio", "Twilio: API keys; auth tokens by their name", gitleaks("twilio-api-key"), varied,
			`SK[0-9a-f]{32}`, `(?i:twilio_auth_token)`+gap+`([0-9a-f]{32})`),
		tokens("digitalocean", "DigitalOcean", "https://docs.digitalocean.com/reference/api/create-personal-access-token/", varied,
			`<dop|doo|dor>_v1_[a-f0-9]{64}`),
		tokens("linear", "Linear", gitleaks("linear-api-key"), varied, `lin_api_[A-Za-z0-9]{40}`, `lin_oauth_[a-f0-9]{64}`),
		tokens("notion", "Notion", gitleaks("notion-api-token"), varied, `ntn_[A-Za-z0-9]{40,64}`, `secret_[A-Za-z0-9]{43}`),
		tokens("vercel", "Vercel; older tokens by their name", "https://vercel.com/docs/sign-in-with-vercel/tokens", varied,
			`<vcp|vci|vca|vcr|vck>_[A-Za-z0-9]{24,80}`, `(?i:vercel_token)`+gap+`([A-Za-z0-9]{24})`),
		tokens("supabase", "Supabase", "https://supabase.com/docs/guides/api/api-keys", varied, `sbp_[a-f0-9]{40}`, `sb_secret_[A-Za-z0-9_-]{20,64}`),
		tokens("databricks", "Databricks", gitleaks("databricks-api-token"), varied, `dapi[a-f0-9]{32}`, `dapi[a-f0-9]{32}-[0-9]`),
		tokens("shopify", "Shopify", gitleaks("shopify-access-token"), varied, `<shpat|shpca|shppa|shpss>_[a-fA-F0-9]{32}`),
		tokens("doppler", "Doppler", "https://docs.doppler.com/reference/auth-token-formats", varied,
			`dp\.<pt|ct|sa|scim|audit|said>\.[A-Za-z0-9]{40,44}`, `dp\.st\.[A-Za-z0-9]{40,44}`, `dp\.st\.[a-z0-9_-]{2,35}\.[A-Za-z0-9]{40,44}`),
		tokens("vault", "HashiCorp Vault", "https://developer.hashicorp.com/vault/docs/concepts/tokens", varied,
			`<hvs|hvb|hvr>\.[A-Za-z0-9_-]{24,512}`),
		tokens("terraform", "HCP Terraform", gitleaks("hashicorp-tf-api-token"), varied, `[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70}`),
		tokens("pulumi", "Pulumi", gitleaks("pulumi-api-token"), varied, `pul-[a-f0-9]{40}`),
		tokens("planetscale", "PlanetScale", gitleaks("planetscale-api-token"), varied,
			`pscale_<tkn|oauth|pw>_[A-Za-z0-9_=.-]{32,64}`),
		tokens("postman", "Postman", gitleaks("postman-api-token"), varied, `PMAK-[a-f0-9]{24}-[a-f0-9]{34}`),
		tokens("sentry", "Sentry", gitleaks("sentry-user-token"), varied, `sntryu_[a-f0-9]{64}`, `sntrys_[A-Za-z0-9+/=_-]{80,500}`),
		tokens("grafana", "Grafana", gitleaks("grafana-service-account-token"), varied,
			`glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}`, `glc_[A-Za-z0-9+/]{32,400}={0,3}`),
		tokens("new-relic", "New Relic", gitleaks("new-relic-user-api-key"), varied, `NRAK-[A-Z0-9]{27}`),
		tokens("cloudflare", "Cloudflare: keys of the origin CA", gitleaks("cloudflare-origin-ca-key"), varied, `v1\.0-[a-f0-9]{24}-[a-f0-9]{146}`),
		tokens("figma", "Figma", "https://www.figma.com/developers/api#access-tokens", varied, `figd_[A-Za-z0-9_-]{40,64}`),
		tokens("tailscale", "Tailscale", "https://tailscale.com/kb/1277/key-prefixes", mixed, `tskey-[A-Za-z0-9-]{20,128}`),
		tokens("1password", "1Password: service accounts, secret keys", gitleaks("1password-secret-key"), varied,
			`ops_eyJ[A-Za-z0-9+/]{250,1000}={0,3}`, `A3-[A-Z0-9]{6}-[A-Z0-9]{11}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}`,
			`A3-[A-Z0-9]{6}-[A-Z0-9]{6}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}`),
		tokens("age", "age", gitleaks("age-secret-key"), varied, `AGE-SECRET-KEY-1[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}`),
	}
}

// general returns the rules for general formats.
func general() []*ruleDef {
	const value = `([A-Za-z0-9._~+/=-]{16,})`
	return []*ruleDef{
		detector("private-key", "private keys in PEM, OpenSSH's and PGP's too", "https://www.rfc-editor.org/rfc/rfc7468", privateKey,
			"from `-----BEGIN ... PRIVATE KEY-----` (or `... BLOCK-----`) through its END, or, if that is missing, to the end of the base64 text", "-----begin "),
		detector("jwt", "JSON Web Tokens", "https://www.rfc-editor.org/rfc/rfc7519", jsonWebToken,
			"three or five parts of base64url with dots between; the first is a JSON object that has `alg`", "eyJ"),
		tokens("authorization", "headers with a bearer token", "https://www.rfc-editor.org/rfc/rfc6750", mixed,
			`(?i:authorization)`+gap+`(?i:<bearer|token|bot|apikey>)[ +]{1,2}`+value),
		tokens("authorization", "headers with a name and a password", "https://www.rfc-editor.org/rfc/rfc7617", basic,
			`(?i:authorization)`+gap+`(?i:basic)[ +]{1,2}([A-Za-z0-9+/]{6,}={0,2})`),
		tokens("api-key-header", "headers with a key", "https://swagger.io/docs/specification/v3_0/authentication/api-keys/", mixed,
			`(?i:<x-api-key|x-goog-api-key|x-auth-token|x-vault-token|private-token>)`+gap+value),
		detector("url-password", "the password of `scheme://user:password@host`", "https://www.rfc-editor.org/rfc/rfc3986#section-3.2.1", urlPassword,
			"up to 256 bytes between `://user:` and `@`; not what a program puts there (`$`, `{`, `%s`, `<`) nor a word that says what belongs there (`password`)", "://"),
		tokens("url-parameter", "tokens in the query of a URL", "https://www.rfc-editor.org/rfc/rfc6750#section-2.3", mixed,
			`[?&;#](?i:<access_token|refresh_token|id_token|auth_token|client_secret|api_key|apikey|token>)=([A-Za-z0-9._~%+/-]{16,})`,
			`[?&;#](?i:<X-Amz-Signature|X-Amz-Security-Token|X-Goog-Signature|signature|sig>)=([A-Za-z0-9._~%+/=-]{40,})`),
		detector("password", "passwords by their name", "the section on names", namedPassword,
			"8 to 512 bytes, set to a name that ends with `password`, `passwd`, `passphrase`, `pwd` or `_pass`", passwordWords...),
		detector("secret", "tokens, keys and secrets by their name", "the section on names", namedSecret,
			"16 to 512 bytes, set to a name that ends with `token`, `secret`, `api_key`, `secret_key`, `access_key`, `private_key` and the like", secretWords...),
	}
}
