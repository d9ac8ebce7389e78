// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Definitions decodes CRDs. They come with the program, not from files that it reads:
// go test would not notice that one has changed.
func Definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(CRDs, "crd/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		b, err := CRDs.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(b, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		all = append(all, crd)
	}
	return all, nil
}
