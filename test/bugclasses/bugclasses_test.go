// SPDX-License-Identifier: Apache-2.0

// Package bugclasses keeps account of the ways in which operators that run pods for
// agents go wrong: for each one the test that would notice it here, or why it cannot
// happen, or that nothing covers it yet. It proves that the named tests exist.
package bugclasses

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	unit       = "controllers"
	stepped    = "test/integration/controllers"
	admission  = "test/integration/api"
	pods       = "controllers/podspec"
	agent      = "internal/agent"
	runner     = "internal/runner"
	kernel     = "test/conformance"
	cluster    = "test/e2e"
	chart      = "test/chart"
	linkTests  = "controllers/link"
	credential = "controllers/authority"
	rules      = "internal/policy"
)

// class is one way to go wrong. Either tests or why is set; open says what is missing.
type class struct {
	what  string
	tests []string // directory:name
	why   string   // it cannot happen
	open  string   // nothing covers it yet
}

var classes = []class{
	// Identity and duplicates.
	{what: "two controllers create a pod each for one session", tests: []string{pods + ":TestNames"}, why: "the pod's name follows from the session's UID, and the apiserver lets one create through"},
	{what: "a stale cache takes what is there for missing", tests: []string{stepped + ":TestALostPodEndsTheSession"}, why: "absence is believed of the apiserver alone"},
	{what: "AlreadyExists is fatal", tests: []string{stepped + ":TestAnotherControllerWasFaster", stepped + ":TestThePodWasCreatedAndTheAnswerLost"}},
	{what: "the pod of a predecessor of the same name is taken for ours", tests: []string{stepped + ":TestADeletedSessionCreatesNothing", pods + ":TestNames"}},
	{what: "a delete removes the successor", why: "every delete of a pod, message or session carries the UID that was seen"},
	{what: "a foreign object with our name is adopted, deleted or fought over", tests: []string{stepped + ":TestAForeignPodIsNeitherUsedNorRemoved", stepped + ":TestAForeignVolumeIsNeitherUsedNorRemoved"}},
	{what: "labels or annotations that users can write decide something", why: "the incarnation is read from the container's arguments; the claim's annotation gives nothing that writing to the volume would not; the inputs annotation can only have an idle pod replaced"},
	{what: "short hashes collide", why: "nothing is selected by hash; a name that is taken is a condition"},
	// Names and limits.
	{what: "a name too long or with dots makes children invalid", tests: []string{admission + ":TestSessionsThatAreRefusedOrAdmitted", pods + ":TestNames"}},
	{what: "names of children are ambiguous", why: "each holds characters of the session's UID hash before its suffix"},
	{what: "a quota that refuses the pod causes a hot loop", tests: []string{stepped + ":TestAQuotaRefusesThePod"}},
	// Status.
	{what: "a conflict on status loses a transition", why: "a conflict looks again after 200 ms, whatever the watches' predicates drop"},
	{what: "a second writer's conditions are replaced", tests: []string{stepped + ":TestAnAgentWithANewerPolicyIsReplacedByName"}, why: "status has one writer, and it writes with the resource version that it read"},
	{what: "Ready stays True while the pod goes away or the node is lost", tests: []string{unit + ":TestConditions"}},
	{what: "a condition of an older generation is taken for today's", tests: []string{stepped + ":TestThereAndBackIsANewConfirmation", stepped + ":TestASwitchIsConfirmedInTheFirstWriteOfItsGeneration"}},
	{what: "a pod that ends because we asked is taken for a failure", tests: []string{stepped + ":TestASuspendedSessionKeepsItsStateAndGoesOn", unit + ":TestPodPlan"}},
	{what: "a status causes the next one", tests: []string{unit + ":TestAnyWorld", stepped + ":TestCreateToReadyTakesAtMostSixWrites"}},
	// Lifecycle.
	{what: "expired, suspended and finished in any order", tests: []string{unit + ":TestTime", stepped + ":TestAnIdleSessionIsSuspendedResumedAndDeleted"}},
	{what: "the clock goes back or a time is past at creation", tests: []string{unit + ":TestTime"}},
	{what: "suspend while creating, resume while ending, both in haste", tests: []string{stepped + ":TestHastySuspendAndResume"}},
	{what: "NotFound on a delete is an error", why: "it is ignored where something is deleted"},
	{what: "a finalizer is stuck", why: "there are none"},
	{what: "a pod is evicted or deleted by somebody", tests: []string{stepped + ":TestALostPodOnAVolumeIsReplaced", stepped + ":TestALostPodEndsTheSession", unit + ":TestPodPlan"}},
	{what: "a requeue is dropped or overwritten", tests: []string{unit + ":TestTime", stepped + ":TestASessionSucceedsOnceItsSendersAreTold", stepped + ":TestTheDeadlineEndsTheSession"}, why: "outcomes of phases are joined, the sooner one holds"},
	{what: "an update replaces a session that is in use", tests: []string{unit + ":TestWhenAnOutdatedPodIsReplaced", stepped + ":TestAnOutdatedPodIsReplacedWhenIdle"}},
	{what: "deletion in the foreground recreates children; owners that block deletion need a right", tests: []string{stepped + ":TestADeletedSessionCreatesNothing", stepped + ":TestCreateBringsPodAndLinkSecret"}},
	// Failures of what is around.
	{what: "no node has room, or its volume claim is not bound", tests: []string{stepped + ":TestTroubleBeforeTheStart", unit + ":TestConditions"}},
	{what: "an image cannot be pulled, a container cannot be created or keeps ending", tests: []string{stepped + ":TestTroubleBeforeTheStart", unit + ":TestConditions", cluster + ":TestTrouble"}},
	{what: "a tools container runs out of memory", tests: []string{stepped + ":TestTroubleOfARunningSession"}},
	{what: "a node is lost, or a runner is not reached", tests: []string{stepped + ":TestAnAgentOrItsNodeIsGone", linkTests + ":TestAnAgentIsUnreachableAfterHalfAMinute"}, why: "a second pod is never created before the first is gone from the apiserver, and none is deleted by force"},
	{what: "a Secret is missing, rotated or deleted", tests: []string{stepped + ":TestTroubleOfARunningSession", stepped + ":TestALinkSecretThatIsDeleted", runner + "/source:TestCredentialsThatAreMissingOrWrongSaySo"}, why: "the model's key is read from its file at each request, and the kubelet brings a new one"},
	{what: "a class changes or goes under running sessions", tests: []string{stepped + ":TestTheClassGoesUnderARunningSession", stepped + ":TestAnOutdatedPodIsReplacedWhenIdle"}},
	{what: "a namespace terminates under a session", tests: []string{stepped + ":TestANamespaceThatTerminatesGetsNoPod"}},
	{what: "the apiserver is away", tests: []string{stepped + ":TestTheApiserverIsAway"}, why: "a read that fails is an error and never an absence; the agent goes on until its lease ends"},
	{what: "etcd is restored to an older state", tests: []string{stepped + ":TestEtcdWasRestoredToAnOlderState", stepped + ":TestAPolicyThatIsRefusedAgainIsSaid", rules + ":TestAccept"}, why: "an agent that knows a later generation is asked to go back by name; a log that is ahead of status is right"},
	{what: "what admission made of a pod is taken for drift", tests: []string{stepped + ":TestPodsThatAdmissionRewritesAreNoDrift", unit + ":TestWhenAnOutdatedPodIsReplaced"}},
	{what: "a workspace is fetched again over what was made of it, or half", tests: []string{runner + "/source:TestARepositoryIsFetchedOnce", runner + "/source:TestAHalfFinishedFetchIsCleanedAndRepeated", cluster + ":TestSuspendAndResumeOnAVolume"}},
	{what: "credentials of a fetch reach a tool, a file or another server", tests: []string{runner + "/source:TestCredentialsOpenTheRepositoryAndAreLeftNowhere", runner + "/source:TestCredentialsAreForTheirOwnServerAlone", pods + ":TestToolsContainersAreKeptApart"}},
	{what: "a pod is deleted in the middle of what its agent does", tests: []string{stepped + ":TestTheAgentFinishesItsLogBeforeThePodGoes", agent + ":TestSuspendLeavesTheTurnOpen"}},
	// Watches and scale.
	{what: "a predicate drops an event that matters", tests: []string{stepped + ":TestTheManagerMovesASessionThroughItsLife", stepped + ":TestTheManagerWatchesTheLabelsOfNamespaces"}},
	{what: "a reconcile lists everything", why: "messages and sessions are read through indexes; only a session without a class lists the classes"},
	{what: "two leaders for a moment", tests: []string{rules + ":TestAccept", linkTests + ":TestAnOlderPolicyIsRefusedWithTheStampInForce",
		stepped + ":TestAStaleOperatorDoesNotWiden", stepped + ":TestAnotherReplicaTakesOver"}},
	{what: "an unschedulable pod is taken for stuck", tests: []string{unit + ":TestConditions"}},
	// Install.
	{what: "an upgrade leaves the CRDs behind, or two releases collide", tests: []string{chart + ":TestTheLifeOfARelease", cluster + ":TestInstallingTwiceSaysSo"}},
	{what: "a right is missing and only a real cluster shows it", tests: []string{stepped + ":TestTheManagerMovesASessionThroughItsLife"}, why: "the tests of the controllers run with the generated role alone"},
	{what: "a certificate ends without a successor", tests: []string{credential + ":TestTheClientCertificateIsRenewedBeforeItEnds",
		credential + ":TestARootIsReplacedWhilePodsKnowIt", stepped + ":TestTheAuthorityIsReplacedUnderALivingSession"}},
	{what: "secrets in conditions, events, variables or tools", tests: []string{pods + ":TestToolsContainersAreKeptApart", cluster + ":TestToolsContainersHoldNoSecret"}},
	// The policy.
	{what: "a command outlives the narrowing", tests: []string{kernel + ":TestAfterNarrowedNotAByteIsWritten", cluster + ":TestNothingWritesAfterANarrowingIsConfirmed"}},
	{what: "quick switches leave a wrong snapshot", tests: []string{agent + ":TestSwitchingToAndFroWhileIdleIsFree", agent + ":TestAThousandSwitches"}},
	{what: "a restart goes on under the old mode", tests: []string{agent + ":TestARestartInTheMiddleOfACall", stepped + ":TestASuspendedSessionKeepsItsStateAndGoesOn"}},
	{what: "status says a mode that is not enforced", tests: []string{stepped + ":TestASlowAgentDrainsThenConfirms", unit + ":TestADigestOfNoPolicyIsNotBelieved"}},
	{what: "tools run where nothing can confine them", tests: []string{agent + ":TestWithoutEnforcementNothingRuns", kernel + ":TestWithoutLandlockAndMountNothingRuns"}},
	{what: "links and ../ lead out of the workspace", tests: []string{kernel + ":TestPromises"}},
	{what: "the agent reaches the apiserver and widens itself", tests: []string{pods + ":TestPodsAreAsReviewedAndRestricted", "cmd/agent:TestTheAgentHasNoHandsAndNoCluster"}},
	{what: "a crash between two writes says a snapshot twice", tests: []string{agent + ":TestEveryCrashIsGoneOnFrom"}},
	{what: "an idle policy ends a session that waits for somebody", tests: []string{unit + ":TestTime"}, why: "only an agent that says it is idle is idle"},
}

func TestEveryClassOfBugIsAccountedFor(t *testing.T) {
	sources := map[string]string{}
	for _, c := range classes {
		if len(c.tests) == 0 && c.why == "" && c.open == "" {
			t.Errorf("%q: no test, no reason why it cannot happen, and not said to be open", c.what)
		}
		for _, name := range c.tests {
			dir, test, _ := strings.Cut(name, ":")
			if sources[dir] == "" {
				sources[dir] = testsIn(t, filepath.Join("../..", dir))
			}
			if !strings.Contains(sources[dir], "\nfunc "+test+"(") {
				t.Errorf("%q: there is no %s in %s", c.what, test, dir)
			}
		}
	}
}

func testsIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}
