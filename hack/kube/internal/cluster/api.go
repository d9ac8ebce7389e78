// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/agentsession-dev/operator/hack/kube/internal/parts"
)

// api talks to the apiserver as the administrator. It is a few lines instead of a
// client library because a few requests are all there is.
type api struct {
	base   string
	client *http.Client
}

func (k *Cluster) api() (*api, error) {
	ca, err := os.ReadFile(k.Path("pki", parts.Authority+".crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("the authority's certificate is damaged: take the cluster down")
	}
	cert, err := tls.LoadX509KeyPair(k.Path("pki", parts.Admin+".crt"), k.Path("pki", parts.Admin+".key"))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}}
	return &api{base: k.APIServer(), client: &http.Client{Transport: transport}}, nil
}

// get reads a path, into a value if there is one.
func (a *api) get(ctx context.Context, path string, into any) error {
	body, err := a.do(ctx, http.MethodGet, path, "", nil)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (a *api) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}

// applyManifests makes the objects of the manifests be as they are written there.
func (k *Cluster) applyManifests(a *api) func(context.Context) error {
	return func(ctx context.Context) error {
		manifests, err := parts.Manifests(k.Config)
		if err != nil {
			return err
		}
		for _, m := range manifests {
			path, err := pathOf(m)
			if err != nil {
				return err
			}
			query := "?fieldManager=" + k.Name + "&force=true"
			if _, err := a.do(ctx, http.MethodPatch, path+query, "application/apply-patch+yaml", []byte(m)); err != nil {
				return err
			}
		}
		return nil
	}
}

// collections are the kinds that manifests have, by their part of a path.
var collections = map[string]string{
	"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	"Service": "services", "EndpointSlice": "endpointslices",
}

func pathOf(manifest string) (string, error) {
	var object struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		return "", fmt.Errorf("reading a manifest: %w", err)
	}
	collection, ok := collections[object.Kind]
	if !ok {
		return "", fmt.Errorf("a manifest has the unknown kind %q", object.Kind)
	}
	path := "/apis/" + object.APIVersion
	if object.APIVersion == "v1" {
		path = "/api/v1"
	}
	if object.Metadata.Namespace != "" {
		path += "/namespaces/" + object.Metadata.Namespace
	}
	return path + "/" + collection + "/" + object.Metadata.Name, nil
}

// healthy asks a part on loopback how it is. Some of them make a certificate for
// themselves at each start, which nobody could check.
func healthy(ctx context.Context, url string) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	a := &api{base: url, client: &http.Client{Transport: transport}}
	return a.get(ctx, "", nil)
}
