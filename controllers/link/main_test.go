// SPDX-License-Identifier: Apache-2.0

package link

import (
	"os"
	"testing"

	"github.com/agentsession-dev/operator/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }
