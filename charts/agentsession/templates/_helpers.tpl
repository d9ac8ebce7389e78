{{- define "agentsession.labels" -}}
app.kubernetes.io/name: agentsession
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "agentsession.selector" -}}
app.kubernetes.io/name: agentsession
app.kubernetes.io/component: manager
{{- end }}

{{/* One of the images that belong to the operator: (list . "manager") */}}
{{- define "agentsession.image" -}}
{{- $root := index . 0 -}}
{{- printf "%s/%s:%v" $root.Values.image.repository (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) -}}
{{- end }}

{{/* What the sandbox of a session asks for, as variables of an admission policy. */}}
{{- define "agentsession.modeVariables" }}
    - name: ranks
      expression: "{'read-only': 0, 'workspace-write': 1, 'danger-full-access': 2}"
    - name: mode
      expression: "object.spec.?sandbox.?mode.orValue('read-only')"
{{- end }}
