// SPDX-License-Identifier: Apache-2.0

// Package parts says how each program of the cluster is called and what its
// files hold. It is a function of the configuration and of a few facts about
// the machine; it reads and starts nothing.
package parts

import (
	"path/filepath"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
)

// Facts are what the machine decides.
type Facts struct {
	BinDir      string   // of the built programs
	Runc        string   // path of runc
	CNIDirs     []string // of the CNI plugins
	Snapshotter string   // overlayfs, or native where overlays cannot be mounted
	RestrictOOM bool     // root may not lower its out-of-memory score
	Nameservers []string // of this machine
	Search      []string
}

// Part is a program that runs as long as the cluster.
type Part struct {
	Name   string // also the name of its binary, log and PID file
	Args   []string
	Health string // URL that answers 200 when the part works; "" where another part's health implies it
}

// LogFile is where the part writes.
func (p Part) LogFile(c config.Config) string { return c.Path("logs", p.Name+".log") }

// PIDFile names its process.
func (p Part) PIDFile(c config.Config) string { return c.Path("pids", p.Name+".json") }

// The stages in which a cluster starts; parts of a stage do not wait for one another.
const (
	Foundation = iota // needs nothing
	Control           // needs etcd
	Node              // needs the apiserver
	stages
)

// Stages are all parts, by the stage in which they start.
func Stages(c config.Config) [][]Part {
	s := make([][]Part, stages)
	s[Foundation] = []Part{etcd(c), containerd(c)}
	s[Control] = []Part{apiserver(c)}
	s[Node] = []Part{controllerManager(c), scheduler(c), kubelet(c), proxy(c), coredns(c)}
	return s
}

// All are the parts in the order in which they start.
func All(c config.Config) []Part {
	var all []Part
	for _, s := range Stages(c) {
		all = append(all, s...)
	}
	return all
}

func etcd(c config.Config) Part {
	client := "https://" + c.OnLoopback(config.EtcdClient)
	peer := "http://" + c.OnLoopback(config.EtcdPeer)
	return Part{Name: "etcd", Args: []string{
		"--name=" + c.Name,
		"--data-dir=" + c.Path("etcd"),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + c.Name + "=" + peer,
		"--client-cert-auth",
		"--trusted-ca-file=" + pkiFile(c, Authority, ".crt"),
		"--cert-file=" + pkiFile(c, EtcdServer, ".crt"),
		"--key-file=" + pkiFile(c, EtcdServer, ".key"),
		// What was written survives the death of every process, but not of the
		// machine: fsync would slow each write of a cluster made to be thrown away.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}}
}

func containerd(c config.Config) Part {
	return Part{Name: "containerd", Args: []string{"--config", c.Path("containerd.toml")}}
}

func apiserver(c config.Config) Part {
	return Part{Name: "kube-apiserver", Args: []string{
		"--bind-address=" + c.NodeIP.String(),
		"--advertise-address=" + c.NodeIP.String(),
		"--secure-port=" + c.PortString(config.APIServer),
		"--etcd-servers=https://" + c.OnLoopback(config.EtcdClient),
		"--etcd-cafile=" + pkiFile(c, Authority, ".crt"),
		"--etcd-certfile=" + pkiFile(c, EtcdClient, ".crt"),
		"--etcd-keyfile=" + pkiFile(c, EtcdClient, ".key"),
		"--tls-cert-file=" + pkiFile(c, APIServer, ".crt"),
		"--tls-private-key-file=" + pkiFile(c, APIServer, ".key"),
		"--client-ca-file=" + pkiFile(c, Authority, ".crt"),
		"--kubelet-certificate-authority=" + pkiFile(c, Authority, ".crt"),
		"--kubelet-client-certificate=" + pkiFile(c, KubeletClient, ".crt"),
		"--kubelet-client-key=" + pkiFile(c, KubeletClient, ".key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + pkiFile(c, FrontProxyClient, ".crt"),
		"--proxy-client-key-file=" + pkiFile(c, FrontProxyClient, ".key"),
		"--requestheader-client-ca-file=" + pkiFile(c, FrontProxyAuthority, ".crt"),
		"--requestheader-allowed-names=" + FrontProxyClient,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pkiFile(c, TokenKey, ".pub"),
		"--service-account-signing-key-file=" + pkiFile(c, TokenKey, ".key"),
		"--service-cluster-ip-range=" + c.ServiceCIDR.String(),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--profiling=false",
		"--audit-policy-file=" + c.Path("audit.yaml"),
		"--audit-log-path=" + c.Path("logs", "audit.log"),
		"--audit-log-maxsize=100", // MiB
		"--audit-log-maxbackup=1",
	}}
}

func controllerManager(c config.Config) Part {
	kubeconfig := Kubeconfig(c, ControllerManager)
	return Part{Name: "kube-controller-manager", Health: "https://" + c.OnLoopback(config.ControllerManager) + "/healthz", Args: []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.PortString(config.ControllerManager),
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + pkiFile(c, TokenKey, ".key"),
		"--root-ca-file=" + pkiFile(c, Authority, ".crt"),
		"--cluster-signing-cert-file=" + pkiFile(c, Authority, ".crt"),
		"--cluster-signing-key-file=" + pkiFile(c, Authority, ".key"),
		"--flex-volume-plugin-dir=" + c.Path("volume-plugins"),
		// Its controllers start one after another and share this allowance: by
		// default they take seconds longer to take a new node in.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--leader-elect=false",
		"--profiling=false",
	}}
}

func scheduler(c config.Config) Part {
	kubeconfig := Kubeconfig(c, Scheduler)
	return Part{Name: "kube-scheduler", Health: "https://" + c.OnLoopback(config.Scheduler) + "/healthz", Args: []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + c.PortString(config.Scheduler),
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--leader-elect=false",
		"--profiling=false",
	}}
}

func kubelet(c config.Config) Part {
	return Part{Name: "kubelet", Health: "http://" + c.OnLoopback(config.KubeletHealth) + "/healthz", Args: []string{
		"--config=" + c.Path("kubelet.yaml"),
		"--kubeconfig=" + Kubeconfig(c, Kubelet),
		"--root-dir=" + c.Path("kubelet"),
		"--cert-dir=" + c.Path("kubelet", "pki"),
		"--hostname-override=" + c.Name,
		"--node-ip=" + c.NodeIP.String(),
	}}
}

func proxy(c config.Config) Part {
	return Part{Name: "kube-proxy", Health: "http://" + c.OnLoopback(config.ProxyHealth) + "/healthz",
		Args: []string{"--config=" + c.Path("kube-proxy.yaml")}}
}

func coredns(c config.Config) Part {
	return Part{Name: "coredns", Health: "http://" + c.OnLoopback(config.DNSReady) + "/ready",
		Args: []string{"-conf", c.Path("Corefile")}}
}

// Kubeconfig is the kubeconfig that a part uses.
func Kubeconfig(c config.Config, leaf string) string { return c.Path("kubeconfigs", leaf) }

func pkiFile(c config.Config, name, ext string) string { return filepath.Join(c.Path("pki"), name+ext) }
