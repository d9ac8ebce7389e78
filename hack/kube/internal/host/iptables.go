// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

// rules lets pods out of their range, and traffic to and from them through a
// machine whose forwarding is closed by default.
func rules(c config.Config) string {
	comment := `-m comment --comment ` + c.Name
	pods := c.PodCIDR.String()
	return "*nat\n" +
		"-A POSTROUTING -s " + pods + " ! -d " + pods + " " + comment + " -j MASQUERADE\n" +
		"COMMIT\n" +
		"*filter\n" +
		"-I FORWARD -s " + pods + " " + comment + " -j ACCEPT\n" +
		"-I FORWARD -d " + pods + " " + comment + " -j ACCEPT\n" +
		"COMMIT\n"
}

func addRules(c config.Config) error {
	if err := removeOwnRules(c); err != nil {
		return err
	}
	return restore("iptables", rules(c))
}

// removeOwnRules removes the rules of addRules, however often they are there.
func removeOwnRules(c config.Config) error {
	return edit("iptables", func(saved string) string { return removal(saved, ownRule(c.Name), nil) })
}

// removeRules removes everything that the cluster put into the tables: our rules,
// kube-proxy's chains and those of the port mapping plugin.
func removeRules(c config.Config) error {
	own := ownRule(c.Name)
	if err := edit("iptables", func(s string) string { return removal(s, own, clusterChain) }); err != nil {
		return err
	}
	if _, err := exec.LookPath("ip6tables-save"); err != nil {
		return nil
	}
	return edit("ip6tables", func(s string) string { return removal(s, own, clusterChain) })
}

func ownRule(name string) func(rule string) bool {
	return func(rule string) bool {
		return strings.Contains(rule, "--comment "+name+" ") || strings.Contains(rule, `--comment "`+name+`" `)
	}
}

// clusterChain tells chains that only a node's programs make.
func clusterChain(chain string) bool {
	return strings.HasPrefix(chain, "KUBE-") || strings.HasPrefix(chain, "CNI-HOSTPORT-") || strings.HasPrefix(chain, "CNI-DN-")
}

// removal turns the output of iptables-save into input for iptables-restore
// --noflush that removes the rules picked by rule, and the chains picked by chain
// with every jump to them. Empty when there is nothing to remove.
func removal(saved string, rule, chain func(string) bool) string {
	if chain == nil {
		chain = func(string) bool { return false }
	}
	var out strings.Builder
	for table := range strings.SplitSeq(saved, "COMMIT\n") {
		var name string
		var deletions, flushes, drops []string
		for line := range strings.Lines(table) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "*"):
				name = line
			case strings.HasPrefix(line, ":"):
				if c := strings.Fields(line[1:])[0]; chain(c) {
					flushes, drops = append(flushes, "-F "+c), append(drops, "-X "+c)
				}
			case strings.HasPrefix(line, "-A "):
				fields := strings.Fields(line)
				if !chain(fields[1]) && (rule(line) || chain(target(fields))) {
					deletions = append(deletions, "-D "+strings.TrimPrefix(line, "-A "))
				}
			}
		}
		if len(deletions)+len(flushes) == 0 {
			continue
		}
		lines := append(append(append([]string{name}, deletions...), flushes...), drops...)
		out.WriteString(strings.Join(lines, "\n") + "\nCOMMIT\n")
	}
	return out.String()
}

func target(fields []string) string {
	for i, f := range fields[:len(fields)-1] {
		if f == "-j" || f == "-g" {
			return fields[i+1]
		}
	}
	return ""
}

func edit(family string, change func(saved string) string) error {
	saved, err := exec.Command(family + "-save").Output()
	if err != nil {
		return fmt.Errorf("%s-save: %w", family, err)
	}
	input := change(string(saved))
	if input == "" {
		return nil
	}
	return restore(family, input)
}

func restore(family, input string) error {
	cmd := exec.Command(family+"-restore", "--noflush", "--wait", "10")
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s-restore: %w: %s", family, err, bytes.TrimSpace(out))
	}
	return nil
}
