// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ModelProvider is the protocol that a model endpoint speaks.
// +kubebuilder:validation:Enum=OpenAIChat;Anthropic
type ModelProvider string

const (
	// ProviderOpenAIChat is the OpenAI chat-completions protocol, which many
	// providers and gateways speak.
	ProviderOpenAIChat ModelProvider = "OpenAIChat"
	// ProviderAnthropic is Anthropic's messages protocol.
	ProviderAnthropic ModelProvider = "Anthropic"
)

// Model says which model answers and where.
// +kubebuilder:validation:XValidation:rule="!isURL(self.baseURL) || url(self.baseURL).getScheme() == 'https' || (url(self.baseURL).getScheme() == 'http' && has(self.insecureHTTP) && self.insecureHTTP)",message="baseURL must begin with https://: over http the key and the conversation can be read on the way. Set insecureHTTP: true if that is acceptable here",fieldPath=".baseURL"
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || !isURL(self.baseURL) || url(self.baseURL).getScheme() == 'https'",message="caBundle is for a baseURL of https: over http no certificate is looked at. Remove caBundle, or make it https",fieldPath=".caBundle"
type Model struct {
	// provider is the protocol of the endpoint. OpenAIChat: OpenAI chat
	// completions, as OpenAI, DeepSeek, vLLM and many gateways speak it.
	// Anthropic: Anthropic's messages.
	// +required
	Provider ModelProvider `json:"provider"`

	// baseURL of the endpoint, without /chat/completions or /messages: for
	// example https://api.deepseek.com/v1 or https://api.anthropic.com. It must
	// be https unless insecureHTTP is set.
	// +required
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getHostname() != '' && url(self).getQuery().size() == 0 && !self.contains('@') && !self.contains('#')",message="baseURL must be a URL with a scheme and a host, without user, query and fragment, for example https://api.deepseek.com/v1"
	BaseURL string `json:"baseURL"`

	// defaultName is the model of sessions that choose none.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\S+$`
	DefaultName string `json:"defaultName"`

	// allowedNames are the models that sessions may choose besides defaultName.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^\S+$`
	AllowedNames []string `json:"allowedNames,omitempty"`

	// contextWindow is how many tokens a request and its answer may have. At 80%
	// of it the older part of a conversation gives way to a summary. Unset: only
	// when the endpoint refuses a request that is too long.
	// +optional
	// +kubebuilder:validation:Minimum=4096
	// +kubebuilder:validation:Maximum=100000000
	ContextWindow int64 `json:"contextWindow,omitempty"`

	// returnReasoning sends the reasoning of earlier answers back, which some
	// endpoints demand between tool calls and others refuse. What an endpoint has
	// signed goes back in any case. Default: false.
	// +optional
	ReturnReasoning bool `json:"returnReasoning,omitempty"`

	// keySecretName names a Secret in the session's namespace whose key apiKey
	// is the key of the endpoint. It is mounted in the agent's container alone.
	// Unset: the endpoint needs no key.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	KeySecretName string `json:"keySecretName,omitempty"`

	// caBundle holds the certificates of the authorities that may vouch for the
	// endpoint, in PEM, at most 64 KiB: they are trusted instead of those of the
	// agent's image. For nothing else: the collector of traces is not concerned. A
	// change holds from the next request; for the time in which an endpoint changes
	// its authority, put both in. Unset: the authorities of the agent's image.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----') && self.contains('-----END CERTIFICATE-----')",message="caBundle must hold certificates in PEM, between lines of -----BEGIN CERTIFICATE----- and -----END CERTIFICATE-----"
	// +kubebuilder:validation:XValidation:rule="!self.contains('PRIVATE KEY')",message="caBundle holds a private key: put nothing but certificates in, and consider that key known"
	CABundle string `json:"caBundle,omitempty"`

	// insecureHTTP allows a baseURL of http. Default: false.
	// +optional
	InsecureHTTP bool `json:"insecureHTTP,omitempty"`
}
