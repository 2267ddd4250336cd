{{- /* What all pods have in common. */ -}}

{{- define "truelog.labels" -}}
app.kubernetes.io/name: truelog
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end }}

{{- define "truelog.metadata" -}}
name: {{ .root.Release.Name }}-{{ .name }}
labels:
  {{- include "truelog.labels" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- /* Kubernetes would describe each Service in variables such as TRUELOG_API_PORT, which are Truelog's settings. */ -}}
{{- define "truelog.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "truelog.container" -}}
image: {{ printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "truelog.resources" -}}
resources:
  requests: {cpu: {{ .cpu | quote }}, memory: {{ .memory | quote }}}
  limits: {memory: {{ .memory | quote }}}
{{- end }}

{{- /* The settings of the values and, of a list of variables, the entries of the Secret. */ -}}
{{- define "truelog.settings" -}}
{{- $root := .root }}
{{- $optional := (.root.Files.Get "processes.yaml" | fromYaml).optional }}
- {name: TRUELOG_STORES, value: own}
{{- range $name, $value := .root.Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- range .secrets }}
- name: {{ . }}
  valueFrom:
    secretKeyRef: {name: {{ $root.Values.secret | quote }}, key: {{ . }}{{ if has . $optional }}, optional: true{{ end }}}
{{- end }}
{{- end }}

{{- define "truelog.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .root.Values.ca }}
- {name: ca, mountPath: /etc/truelog/ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "truelog.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- if .root.Values.ca }}
- {name: ca, configMap: {name: {{ .root.Values.ca | quote }}}}
{{- end }}
{{- end }}

{{- /* Lets the peers of `ingressFrom` reach the port, if there is one. Nothing else reaches the pods. */ -}}
{{- define "truelog.access" -}}
{{- if .port }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "truelog.metadata" . | nindent 2 }}
spec:
  type: ClusterIP
  selector:
    {{- include "truelog.labels" . | nindent 4 }}
  ports: [{name: http, port: {{ .port }}, targetPort: http}]
{{- end }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "truelog.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "truelog.labels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    {{- if .port }}
    - from:
        {{- toYaml .root.Values.ingressFrom | nindent 8 }}
      ports: [{port: http}]
    {{- else }} []
    {{- end }}
{{- end }}
