// SPDX-License-Identifier: Apache-2.0

package config

// Port names a port, and is the name of the flag that changes it.
type Port string

// The ports of a cluster.
const (
	APIServer         Port = "apiserver-port"
	EtcdClient        Port = "etcd-port"
	EtcdPeer          Port = "etcd-peer-port"
	Kubelet           Port = "kubelet-port"
	KubeletHealth     Port = "kubelet-health-port"
	ControllerManager Port = "controller-manager-port"
	Scheduler         Port = "scheduler-port"
	ProxyHealth       Port = "proxy-health-port"
	ProxyMetrics      Port = "proxy-metrics-port"
	DNS               Port = "dns-port"
	DNSReady          Port = "dns-ready-port"
)

// Listener is a port that a part of the cluster listens on. None listens on an
// address that another machine can reach.
type Listener struct {
	Port    Port
	Default int
	Part    string
	OnNode  bool // at the node's address; otherwise at 127.0.0.1
}

// Listeners are all of them; the defaults are the usual ones of Kubernetes.
var Listeners = []Listener{
	{APIServer, 6443, "kube-apiserver", true},
	{EtcdClient, 2379, "etcd", false},
	{EtcdPeer, 2380, "etcd", false},
	{Kubelet, 10250, "kubelet", true},
	{KubeletHealth, 10248, "kubelet", false},
	{ControllerManager, 10257, "kube-controller-manager", false},
	{Scheduler, 10259, "kube-scheduler", false},
	{ProxyHealth, 10256, "kube-proxy", false},
	{ProxyMetrics, 10249, "kube-proxy", false},
	{DNS, 10053, "coredns", true},
	{DNSReady, 10054, "coredns", false},
}

// Address is where the listener listens in c.
func (l Listener) Address(c Config) string {
	if l.OnNode {
		return c.OnNode(l.Port)
	}
	return c.OnLoopback(l.Port)
}
