package cli

import "testing"

func TestIsUTF8(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		want             bool
	}{{"", "", "", false}, {"", "", "C", false}, {"", "", "C.UTF-8", true}, {"", "de_DE.utf8", "C", true}, {"C", "de_DE.utf8", "C.UTF-8", false}, {"", "", "de_DE.ISO-8859-1", false}} {
		env := map[string]string{"LC_ALL": c.all, "LC_CTYPE": c.ctype, "LANG": c.lang}
		if got := IsUTF8(func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%v: %v", env, got)
		}
	}
}
