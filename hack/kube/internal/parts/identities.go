// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"net/netip"

	"github.com/agentsession-dev/operator/hack/kube/internal/config"
	"github.com/agentsession-dev/operator/hack/kube/internal/pki"
)

// Names of certificates, keys and kubeconfigs.
const (
	Authority           = "ca"
	FrontProxyAuthority = "front-proxy-ca"
	TokenKey            = "service-accounts"

	EtcdServer        = "etcd-server"
	EtcdClient        = "etcd-client"
	APIServer         = "apiserver"
	KubeletClient     = "kubelet-client"
	FrontProxyClient  = "front-proxy-client"
	Admin             = "admin"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
	Kubelet           = "kubelet"
	Proxy             = "proxy"
	DNS               = "dns"
)

// KubeletClientUser is whom kubelets see when the apiserver calls.
const KubeletClientUser = "kube-apiserver-kubelet-client"

// DNSUser is whom the apiserver sees when CoreDNS calls.
const DNSUser = "system:coredns"

// Leaves are the certificates that Authority signs. Users and groups are those
// to which Kubernetes' own roles are bound.
func Leaves(c config.Config) []pki.Leaf {
	loopback := netip.MustParseAddr("127.0.0.1")
	return []pki.Leaf{
		{Name: EtcdServer, CommonName: "etcd", DNS: []string{"localhost"}, IPs: []netip.Addr{loopback}, Server: true, Client: true},
		{Name: EtcdClient, CommonName: "kube-apiserver-etcd-client", Client: true},
		{Name: APIServer, CommonName: "kube-apiserver", Server: true,
			DNS: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
			IPs: []netip.Addr{c.KubernetesIP(), c.NodeIP, loopback}},
		{Name: KubeletClient, CommonName: KubeletClientUser, Client: true},
		{Name: Admin, CommonName: "admin", Organization: "system:masters", Client: true},
		{Name: ControllerManager, CommonName: "system:kube-controller-manager", Client: true},
		{Name: Scheduler, CommonName: "system:kube-scheduler", Client: true},
		{Name: Kubelet, CommonName: "system:node:" + c.Name, Organization: "system:nodes",
			DNS: []string{c.Name}, IPs: []netip.Addr{c.NodeIP}, Server: true, Client: true},
		{Name: Proxy, CommonName: "system:kube-proxy", Client: true},
		{Name: DNS, CommonName: DNSUser, Client: true},
	}
}

// FrontProxyLeaf is what FrontProxyAuthority signs: the apiserver as a client of
// aggregated apiservers.
func FrontProxyLeaf() pki.Leaf {
	return pki.Leaf{Name: FrontProxyClient, CommonName: FrontProxyClient, Client: true}
}

// WithKubeconfig are the leaves that programs use through a kubeconfig.
func WithKubeconfig() []string {
	return []string{ControllerManager, Scheduler, Kubelet, Proxy, DNS}
}
