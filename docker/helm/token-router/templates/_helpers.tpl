{{- define "token-router.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "token-router.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "token-router.labels" -}}
{{ include "token-router.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "token-router.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}

{{/* A part's resources: the release's name and the part's, with dashes. */}}
{{- define "token-router.partName" -}}
{{ include "token-router.name" .root }}-{{ .name | replace "_" "-" }}
{{- end -}}

{{/* Layout `separate`: the Triton models that are doors. */}}
{{- define "token-router.doors" -}}
{{ ternary (list "token_router" "router") (list "token_router") .Values.separate.ensemble | toJson }}
{{- end -}}

{{/* Layout `separate`: everybody who listens. */}}
{{- define "token-router.endpoints" -}}
{{- $names := include "token-router.doors" . | fromJsonArray -}}
{{- range .Values.separate.models }}{{ $names = append $names .name }}{{ end -}}
{{ $names | toJson }}
{{- end -}}

{{/* Layout `separate`: the parts as JSON, each a pod of its own; the door first. */}}
{{- define "token-router.parts" -}}
{{- if .Values.autoscaling.enabled }}{{ fail "layout separate: autoscaling must be off: each model is one pod; use more releases behind one gateway instead" }}{{ end -}}
{{- if ne (int .Values.replicas) 1 }}{{ fail "layout separate: replicas must be 1: each model is one pod; use more releases behind one gateway instead" }}{{ end -}}
{{- if not .Values.separate.keysSecret }}{{ fail "separate.keysSecret: name the Secret with the keys that python -m tools.make_keys made (docs/kubernetes.md)" }}{{ end -}}
{{- if and (ne (.Values.cutoff | toString) "") (not .Values.policy) }}{{ fail "layout separate: cutoff needs policy beside it" }}{{ end -}}
{{- $doors := include "token-router.doors" . | fromJsonArray -}}
{{- $loads := $doors -}}
{{- if .Values.separate.ensemble }}{{ $loads = concat $doors (list "preprocessing" "postprocessing" "ensemble") }}{{ end -}}
{{- $parts := list (merge (dict "name" "door" "isDoor" true "loads" $loads "endpoints" $doors) .Values.separate.door) -}}
{{- range .Values.separate.models }}
{{- $parts = append $parts (merge (dict "loads" (list .name) "endpoints" (list .name)) .) -}}
{{- end -}}
{{ $parts | toJson }}
{{- end -}}

{{/* What the ConfigMap holds. */}}
{{- define "token-router.files" -}}
{{- with .Values.models.deployment }}
deployment.yaml: {{ . | quote }}
{{- end }}
{{- if eq .Values.layout "separate" }}
network.yaml: |
  transport: tcp
  keys: /keys
  allowed_dirs: [/keys]
  {{- with .Values.policy }}
  policy: {{ dict "name" . "params" (ternary (dict) (dict "cutoff" (float64 $.Values.cutoff)) (eq ($.Values.cutoff | toString) "")) | toJson }}
  {{- end }}
  addresses:
  {{- range $part := include "token-router.parts" . | fromJsonArray }}
  {{- range $index, $endpoint := $part.endpoints }}
    {{ $endpoint }}: "{{ include "token-router.partName" (dict "root" $ "name" $part.name) }}-handoff:{{ add 5600 $index }}"
  {{- end }}
  {{- end }}
  listen:
  {{- range $part := include "token-router.parts" . | fromJsonArray }}
  {{- range $index, $endpoint := $part.endpoints }}
    {{ $endpoint }}: "0.0.0.0:{{ add 5600 $index }}"
  {{- end }}
  {{- end }}
{{- end }}
{{- end -}}
