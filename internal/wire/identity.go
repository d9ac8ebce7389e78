// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

// ClientName is the DNS name in the operator's client certificate, the only peer
// that an agent takes orders from.
const ClientName = "operator.agentsession.dev"

// ServerName is the DNS name in the certificate of one agent: of one session, in one incarnation of its pod.
func ServerName(sessionUID, incarnation string) string {
	return incarnation + "." + sessionUID + ".agents.agentsession.dev"
}

// CAHash is what the pod spec says of the operator's CA: the lower-case hex SHA-256
// of its certificate in DER. A pod spec cannot be edited while it runs, a Secret can.
func CAHash(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Files in the mounted link Secret, and the key of the model's API key in its Secret.
const (
	TLSCertFile  = "tls.crt"
	TLSKeyFile   = "tls.key"
	TLSCAFile    = "ca.crt"
	ModelKeyFile = "apiKey"
)

// PrivateDir is a directory in ToolboxDir that only the agent's user may enter. In it is the
// file that the kubelet puts into each tools container, writable for all, for a last message
// (/dev/termination-log in other containers).
const (
	PrivateDir     = "private"
	TerminationLog = ToolboxDir + "/" + PrivateDir + "/termination-log"
)

// Paths inside the containers.
const (
	LogDir      = "/log"       // agent
	CtlDir      = "/ctl"       // agent: one directory a container below it; tools container: its own
	ToolboxDir  = "/toolbox"   // the toolbox binary, written by the agent before the tools containers start
	TLSDir      = "/tls"       // agent
	ModelKeyDir = "/model-key" // agent
	Workspace   = "/workspace" // tools containers
	HomeDir     = "/tmp/home"  // tools containers; exists in tools-rw only
)

// Where the fetch of a workspace's source finds and leaves what no tool sees.
const (
	SourceDir      = "/source"             // what has been fetched
	SourceFilesDir = "/source-files"       // the mounted ConfigMap
	SourceKeyDir   = "/source-credentials" // the mounted Secret
)

// How the fetch of a workspace's source ends where it fails; its last words are the termination message.
const (
	SourceFailed      = 3 // it cannot be had as it is asked for
	SourceUnavailable = 4 // its server was not reached
)
