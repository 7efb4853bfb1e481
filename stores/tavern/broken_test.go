package tavern_test

import (
	"testing"

	"github.com/tallylog/tally/internal/testkit"
)

// The laws notice what they are for: a build that is broken on purpose fails them.
func TestBroken(t *testing.T) {
	testkit.Broken(t, "tally_tavern_broken", map[string]string{
		"TestAgentCutOff": "apart", "TestAgentDueLaw": "agent hasty", "TestQueueFencing": "blind", "TestQueueLaw": "forgetful", "TestRestart": "forgetful", "TestPersonalModel": "collide",
		"TestFlowOneStepOnce": "flow blind", "TestFlowLaw": "flow newest", "TestInboxCursorLaw": "inbox forgets", "TestInboxOnceLaw": "inbox random", "TestDaemonsLaw": "daemons blind",
	}, "-rapid.nofailfile", "-rapid.shrinktime=0s")
}
