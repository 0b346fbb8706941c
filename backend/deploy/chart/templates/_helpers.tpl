{{- define "hai.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "hai.selector" -}}
app.kubernetes.io/name: hai-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hai.postgresqlSelector" -}}
app.kubernetes.io/name: hai-postgresql
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hai.labels" -}}
{{ include "hai.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: hai-platform
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "hai.image" -}}
{{- $repository := required "image.repository is needed: the image that backend/deploy/Dockerfile makes" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "hai.tasks" -}}
{{ .Values.tasks.namespace | default .Release.Namespace }}
{{- end }}

{{- define "hai.sharedClaim" -}}
{{ .Values.shared.existingClaim | default (printf "%s-shared" (include "hai.name" .)) }}
{{- end }}

{{- define "hai.databaseSecret" -}}
{{- if .Values.postgresql.enabled -}}
{{- if .Values.database.existingSecret }}{{ fail "postgresql.enabled and database.existingSecret exclude one another" }}{{ end -}}
{{ include "hai.name" . }}-postgresql
{{- else -}}
{{ required "a database is needed: set database.existingSecret, or postgresql.enabled=true" .Values.database.existingSecret }}
{{- end -}}
{{- end }}

{{- define "hai.tlsSecret" -}}
{{- if not .Values.tls.insecure -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "hai.name" .)) }}
{{- end -}}
{{- end }}

{{- /* The names for which the servers' certificates are valid. */ -}}
{{- define "hai.names" -}}
{{- $names := list (include "hai.host" .) (printf "*.%s" (include "hai.peers" .)) "localhost" -}}
{{- with include "hai.browsersHost" . }}{{ $names = append $names . }}{{ end -}}
{{- range .Values.tls.names }}{{ if not (regexMatch "^([0-9.]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)$" .) }}{{ $names = append $names . }}{{ end }}{{ end -}}
{{ $names | uniq | toJson }}
{{- end }}

{{- /* The IP addresses for which they are valid. */ -}}
{{- define "hai.ips" -}}
{{- $ips := list "127.0.0.1" -}}
{{- range .Values.tls.names }}{{ if regexMatch "^([0-9.]+|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)$" . }}{{ $ips = append $ips . }}{{ end }}{{ end -}}
{{ $ips | uniq | toJson }}
{{- end }}

{{- /* The host name of tasks in browsers: one name if tasks are paths, else a wildcard. Empty if there is no proxy. */ -}}
{{- define "hai.browsersHost" -}}
{{- with .Values.proxy -}}
{{- if .url }}{{ if not .paths }}*.{{ end }}{{ (urlParse .url).hostname }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "hai.host" -}}
{{ include "hai.name" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "hai.peers" -}}
{{ include "hai.name" . }}-peers.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "hai.levels" -}}
EXTREME_HIGH VERY_HIGH HIGH ABOVE_NORMAL NORMAL UNDER_NORMAL BELOW_NORMAL LOW SPOT
{{- end }}

{{- define "hai.class" -}}
hai-{{ .cluster | lower }}-{{ .level | lower | replace "_" "-" }}
{{- end }}

{{- /* Converts whole numbers of a dictionary to integers: YAML has one type of number, TOML has two. */ -}}
{{- define "hai.whole" -}}
{{- $table := . -}}
{{- range $key, $value := $table -}}
{{- if kindIs "float64" $value -}}
{{- if eq $value (floor $value) }}{{ $_ := set $table $key (int64 $value) }}{{ end -}}
{{- else if kindIs "map" $value -}}
{{- include "hai.whole" $value -}}
{{- else if kindIs "slice" $value -}}
{{- range $value }}{{ if kindIs "map" . }}{{ include "hai.whole" . }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* The settings of the proxy. */ -}}
{{- define "hai.door" -}}
{{- if .Values.proxy.url -}}
{{- if and (include "hai.tlsSecret" .) (hasPrefix "http:" .Values.proxy.url) }}{{ fail "proxy.url must begin with https: servers speak TLS to browsers, too" }}{{ end -}}
{{- if has (int .Values.proxy.port) (list (int .Values.service.port) (int .Values.metrics.port)) }}{{ fail "proxy.port is service.port or metrics.port" }}{{ end -}}
http_listen: 0.0.0.0:{{ .Values.proxy.port }}
http_url: {{ .Values.proxy.url }}
http_paths: {{ .Values.proxy.paths }}
{{- else -}}
http_listen: ""
{{- end -}}
{{- end }}

{{- /* hai.toml: the chart's own settings. `settings` and `kubernetes` of the values override them. */ -}}
{{- define "hai.toml" -}}
{{- $tls := include "hai.tlsSecret" . -}}
{{- $port := int .Values.service.port -}}
{{- $own := dict "cluster" .Values.cluster "admin" .Values.admin
    "listen" (printf "0.0.0.0:%d" $port)
    "servers" (printf "%s:%d" (include "hai.host" .) $port)
    "shared" "/var/lib/hai/shared" "run_token_key" "/etc/hai/key/key" -}}
{{- if $tls -}}
{{- $own = merge $own (dict "tls_cert" "/etc/hai/tls/tls.crt" "tls_key" "/etc/hai/tls/tls.key" "tls_ca" "/etc/hai/tls/ca.crt") -}}
{{- else -}}
{{- $own = merge $own (dict "insecure" true) -}}
{{- end -}}
{{- if .Values.metrics.enabled -}}
{{- $own = merge $own (dict "metrics_port" (int .Values.metrics.port) "metrics_host" "0.0.0.0") -}}
{{- end -}}
{{- $own = merge $own (include "hai.door" . | fromYaml) -}}
{{- $pods := dict "namespace" (include "hai.tasks" .) "agent_image" (include "hai.image" .)
    "pull_policy" .Values.image.pullPolicy "pull_secret" .Values.image.pullSecret -}}
{{- if eq (include "hai.tasks" .) .Release.Namespace -}}
{{- $pods = merge $pods (dict "shared_volume" (printf "pvc:%s" (include "hai.sharedClaim" .))) -}}
{{- end -}}
{{- if not (and .Values.networkPolicy.enabled .Values.networkPolicy.separateUsers) -}}
{{- $pods = merge $pods (dict "separate_users" false) -}}
{{- end -}}
{{- if .Values.tasks.priorityClasses -}}
{{- $classes := dict -}}
{{- range splitList " " (include "hai.levels" .) -}}
{{- $_ := set $classes . (include "hai.class" (dict "cluster" $.Values.cluster "level" .)) -}}
{{- end -}}
{{- $pods = merge $pods (dict "priority_classes" $classes) -}}
{{- end -}}
{{- $own = merge (deepCopy .Values.settings) $own -}}
{{- $_ := set $own "kubernetes" (merge (deepCopy .Values.kubernetes) $pods) -}}
{{- include "hai.whole" $own -}}
{{ toToml $own | trim }}
{{- end }}
