{{/* The pod of one Triton server. `own` is empty for a pod with all models; in the layout `separate` it is one
     part: name, loads (Triton models), endpoints (whose secret keys it needs), and values of its own. */}}
{{- define "token-router.pod" -}}
{{- $ := .root }}
{{- $own := .own }}
{{- $drain := $.Values.drain }}
{{- $repository := ternary "/models" "/opt/token_router/model_repository" (not (empty ($own.volume | default $.Values.models.volume))) -}}
metadata:
  labels:
    {{- include "token-router.labels" $ | nindent 4 }}
    {{- with $own.name }}
    app.kubernetes.io/component: {{ . }}
    {{- end }}
  annotations:
    checksum/deployment: {{ include "token-router.files" $ | sha256sum }}
    {{- with $.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  # Leave the Service, let open streams finish, and some time to unload the models.
  terminationGracePeriodSeconds: {{ add $drain.leaveServiceSeconds $drain.openStreamsSeconds 20 }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with $.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.runtimeClassName | default $.Values.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- if $own.name }}
  initContainers:
    # Kubernetes lets the group read a mounted secret, which the router refuses: it gets copies of its own.
    - name: keys
      image: {{ include "token-router.image" $ }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      command: ["sh", "-c", "install -m 0600 /secret/* /keys/"]
      resources: {limits: {cpu: 100m, memory: 64Mi}}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: secret, mountPath: /secret, readOnly: true}
        - {name: keys, mountPath: /keys}
  {{- end }}
  containers:
    - name: triton
      image: {{ include "token-router.image" $ }}
      imagePullPolicy: {{ $.Values.image.pullPolicy }}
      {{- if $own.name }}
      args: [part{{ range $own.loads }}, {{ . | quote }}{{ end }}]
      {{- end }}
      env:
        - {name: DRAIN_S, value: {{ $drain.openStreamsSeconds | quote }}}
        - {name: READY_S, value: {{ mul $.Values.startupAttempts 10 | quote }}}
        {{- if $own.name }}
        - {name: SETTINGS, value: /etc/token-router/network.yaml}
        {{- if $own.isDoor }}
        - {name: OPENAI_PORT, value: "8003"}
        {{- end }}
        {{- else }}
        - {name: POLICY, value: {{ $.Values.policy | quote }}}
        - {name: CUTOFF, value: {{ $.Values.cutoff | toString | quote }}}
        {{- end }}
        {{- if and $.Values.openai.apiKeysSecret (or $own.isDoor (not $own.name)) }}
        - {name: API_KEYS, value: /etc/token-router-api/keys}
        {{- end }}
        {{- if eq $repository "/models" }}
        - {name: MODEL_REPOSITORY, value: /models}
        {{- end }}
        {{- with $.Values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: http, containerPort: 8000}
        - {name: grpc, containerPort: 8001}
        - {name: metrics, containerPort: 8002}
        {{- if or $own.isDoor (not $own.name) }}
        - {name: openai, containerPort: 8003}
        {{- end }}
        {{- range $index, $endpoint := $own.endpoints }}
        - {name: handoff-{{ $index }}, containerPort: {{ add 5600 $index }}}
        {{- end }}
      # Ready means that every model of this server is loaded: the supervisor takes out what has died.
      startupProbe:
        httpGet: {path: /v2/health/ready, port: http}
        periodSeconds: 10
        failureThreshold: {{ $.Values.startupAttempts }}
      readinessProbe:
        httpGet: {path: /v2/health/ready, port: http}
        periodSeconds: 5
        timeoutSeconds: 4
      # A model that died is loaded again inside the pod; only a server that does not answer is replaced.
      livenessProbe:
        httpGet: {path: /v2/health/live, port: http}
        periodSeconds: 10
        timeoutSeconds: 8
        failureThreshold: 6
      lifecycle:
        preStop:
          exec:
            command: ["sleep", {{ $drain.leaveServiceSeconds | quote }}]
      resources: {{- toYaml ($own.resources | default $.Values.resources) | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts:
        - {name: shm, mountPath: /dev/shm}
        {{- if eq $repository "/models" }}
        - {name: models, mountPath: /models, readOnly: true}
        {{- end }}
        {{- if $.Values.models.deployment }}
        - {name: files, mountPath: {{ $repository }}/deployment.yaml, subPath: deployment.yaml, readOnly: true}
        {{- end }}
        {{- if $own.name }}
        - {name: files, mountPath: /etc/token-router/network.yaml, subPath: network.yaml, readOnly: true}
        - {name: keys, mountPath: /keys, readOnly: true}
        {{- end }}
        {{- if and $.Values.openai.apiKeysSecret (or $own.isDoor (not $own.name)) }}
        - {name: api-keys, mountPath: /etc/token-router-api, readOnly: true}
        {{- end }}
  volumes:
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $own.sharedMemory | default $.Values.sharedMemory }}}
    {{- with $own.volume | default $.Values.models.volume }}
    - name: models
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if or $.Values.models.deployment $own.name }}
    - name: files
      configMap: {name: {{ include "token-router.name" $ }}}
    {{- end }}
    {{- if $own.name }}
    - name: keys
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    # Everybody's public key, and of the secret ones its own only.
    - name: secret
      secret:
        secretName: {{ $.Values.separate.keysSecret }}
        defaultMode: 0400
        items:
          {{- range include "token-router.endpoints" $ | fromJsonArray }}
          - {key: {{ . }}.public, path: {{ . }}.public}
          {{- end }}
          {{- range $own.endpoints }}
          - {key: {{ . }}.secret, path: {{ . }}.secret}
          {{- end }}
    {{- end }}
    {{- if and $.Values.openai.apiKeysSecret (or $own.isDoor (not $own.name)) }}
    - name: api-keys
      secret: {secretName: {{ $.Values.openai.apiKeysSecret }}, defaultMode: 0400}
    {{- end }}
  {{- with $own.nodeSelector | default $.Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.tolerations | default $.Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $own.affinity | default $.Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
