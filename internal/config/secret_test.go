package config

import (
	"strings"
	"testing"
)

// The part of a URL before its host is never shown.
func FuzzWithoutSecrets(f *testing.F) {
	for _, c := range [][2]string{{"nats://ann:", "host:4222"}, {"", "host"}, {"tls://", "h,nats://i"}, {"nats://a/", "b"}, {"bob:%", "a:4222"}, {"x://", "h"}, {"nats://h,", "i"}} {
		f.Add(c[0], c[1])
	}
	const secret = "geheim"
	f.Fuzz(func(t *testing.T, before, host string) {
		if strings.Contains(before+host, secret) {
			t.Skip()
		}
		got := withoutSecrets(before + secret + "@" + host)
		if strings.Contains(got, secret) {
			t.Errorf("%q shows %q", before+secret+"@"+host, got)
		}
		if !strings.Contains(host, "@") && !strings.HasSuffix(got, "@"+host) {
			t.Errorf("%q has not the host %q", got, host)
		}
	})
}
