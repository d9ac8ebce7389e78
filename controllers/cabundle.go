// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	"k8s.io/utils/lru"

	"github.com/agentsession-dev/operator/api/v1alpha1"
)

// caBundleOf says why a class's CA bundle is not accepted. Go leaves out of a bundle what it
// cannot read, and then an endpoint would not be trusted with nobody knowing why.
func caBundleOf(class *v1alpha1.AgentSessionClass) *refusal {
	if class.Spec.Model.CABundle == "" {
		return nil
	}
	if err := checkCertificates(class.Spec.Model.CABundle); err != nil {
		return refuse(v1alpha1.ReasonCABundleInvalid, "The model.caBundle of class %s cannot be used: %v. Correct it, with whole certificates in PEM and nothing else.",
			class.Name, err)
	}
	return nil
}

// certificatesChecked is what was found in the bundles that were looked at last: each reconcile of each
// session of a class asks for the same one.
var certificatesChecked = lru.New(16)

// checkCertificates finds what in a bundle is no certificate.
func checkCertificates(bundle string) error {
	if found, ok := certificatesChecked.Get(bundle); ok {
		err, _ := found.(error)
		return err
	}
	err := parseCertificates(bundle)
	certificatesChecked.Add(bundle, err)
	return err
}

func parseCertificates(bundle string) error {
	found := 0
	for rest := []byte(bundle); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		found++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("block %d is a %s", found, cutLine(block.Type, 64))
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d cannot be read (%s)", found, cutLine(err.Error(), 256))
		}
	}
	if begun := strings.Count(bundle, "-----BEGIN "); begun != found {
		return fmt.Errorf("%d of the %d blocks that begin in it are damaged", begun-found, begun)
	}
	if found == 0 {
		return fmt.Errorf("it holds no certificate")
	}
	return nil
}
