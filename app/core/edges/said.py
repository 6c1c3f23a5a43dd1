"""Words by which programs say what they lack, whatever they are written in: of Go, Java, Python, Node.js, .NET, Ruby,
PHP and Rust, of OpenSSL and the C library, and of the servers that are most called.

program_causes.py says which changes each can come of. Sources: https://pkg.go.dev/net#DNSError ,
https://pkg.go.dev/crypto/x509#CertificateInvalidError , https://nodejs.org/api/errors.html ,
https://docs.openssl.org/master/man3/X509_STORE_CTX_get_error/ , https://man7.org/linux/man-pages/man3/errno.3.html ,
https://www.postgresql.org/docs/current/errcodes-appendix.html ,
https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html ,
https://docs.oracle.com/en/error-help/db/ , https://redis.io/docs/latest/develop/reference/ ,
https://redis.io/docs/latest/develop/reference/protocol-spec/ , https://kafka.apache.org/documentation/ ,
https://kafka.apache.org/protocol#protocol_error_codes , https://www.rabbitmq.com/docs/access-control ,
https://www.elastic.co/docs/troubleshoot/elasticsearch ; and what these programs print.
"""

from __future__ import annotations

import re

Words = re.Pattern[str]


def _any(*words: str) -> Words:
    return re.compile("|".join(words), re.IGNORECASE)


UNREACHED = _any(
    r"no route to host|(?:network|host) is unreachable|host unreachable|i/o timeout|connect: timeout",
    r"connect(?:ion|ing)?\b(?: [^|\s]+){0,6} timed out|connect ?timeout",
    r"\bETIMEDOUT\b|\bEHOSTUNREACH\b|\bENETUNREACH\b|connected host has failed to respond|OpenTimeout",
    r"connection to \S.*failed: timeout expired",
)
"""Packets do not arrive, or none comes back."""
CUT_OFF = _any(
    r"refused|\bECONNRESET\b|reset by peer|connection (?:was )?(?:reset|closed|aborted|lost)|hang up|broken pipe",
    r"\bEPIPE\b|(?:failed|unable) to connect|(?:could not|couldn't|cannot|can't) connect|gone away|lost connection",
    r"unexpected EOF|no healthy upstream|upstream connect error|prematurely closed",
)
"""Nobody listens there, or whoever did has hung up."""
UNANSWERED = _any(r"timed? ?out|timeout|deadline.exceeded")
"""No answer came in time."""
NO_NAME = _any(
    r"\blookup \S+.*(?:no such host|server misbehaving|i/o timeout)|\blookup address information",
    r"name resolution|(?:name or service|nodename nor servname(?: provided)?,? or) not known|name does not resolve",
    r"\bSERVFAIL\b|\bNXDOMAIN\b|\bEAI_AGAIN\b|\bENOTFOUND\b|UnknownHost|unknown (?:mysql server )?host\b",
    r"(?:couldn't|could not|cannot|can't|unable to|failed to) resolve (?:host|server|name|address)",
    r"could not translate host name|host not found|no such host is known|non-existing domain|no resolvable",
    r"name resolver error|\bdns (?:resolution|lookup|query)\b.{0,40}(?:fail|time)|DnsNameResolver|DnsErrorCause",
)
NOT_TRUSTED = _any(
    r"x509: |certificate.verify.(?:failed|error)|self.signed|PKIX path|UnknownIssuer|invalid peer certificate",
    r"unable.to.(?:get.local.issuer|get.issuer|verify.the.first|verify.leaf)|unknown (?:certificate )?authority",
    r"unknown.ca\b|bad.certificate|certificate.unknown|certificate is (?:valid for|not (?:trusted|valid for))",
    r"altname|subject alternative |SSLPeerUnverified|hostname mismatch|no required SSL certificate",
    r"remote certificate (?:is invalid|was rejected)|authority that is not trusted|certificate does not match",
)
"""Of a certificate that is shown: by an issuer that is not trusted, or for another name."""
UNKNOWN_AUTHORITY = _any(
    r"PKIX path|UnknownIssuer|unable.to.get.(?:local.)?issuer|unknown (?:certificate )?authority|unknown.ca\b",
)
"""That one by an issuer that is not known at all."""
NOT_LET_IN = _any(
    r"authentication failed|authenticationerror|password|invalid[ _](?:api )?(?:key|token|credential|grant|client)",
    r"InvalidAccessKeyId|authorization violation",
    r"unauthori[sz]ed|\b401\b|access ?denied|WRONGPASS|NOAUTH|bad credentials|not authori[sz]ed|login failed",
    r"NoCredential|locate credentials|InvalidClientTokenId|SignatureDoesNotMatch|ACCESS_REFUSED|no pg_hba\.conf entry",
    r"missing authentication|(?:topic|group|cluster|transactional_?id)_?authorization_?failed|SASL authentication",
    r"LDAP: error code 49|\bNOPERM\b|role \S+ does not exist",
    r"\bjwt|invalid.{0,2}(?:audience|issuer|signature)|token (?:is|was) (?:invalid|not valid)",
)
TURNED_AWAY = _any(r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) \S+ HTTP/[\d.]+\W+40[13]\b")
"""As a server logs whom it lets in no more (https://httpd.apache.org/docs/2.4/logs.html#common)."""
DISK_FULL = _any(
    r"no space left on device|disk (?:is )?full|ENOSPC|disk quota exceeded|could not extend file",
    r"not enough (?:disk |free )?space (?:on|in|left)|(?:out of|insufficient|low on|no) disk space",
    r"error number 28\b|disk watermark|disk usage exceeded|disk free space alarm|disk space is insufficient",
    r"the table '\S+' is full|(?:filegroup|tablespace \S+) is full|unable to extend (?:\w+ )*(?:table|index|segment)",
)
USED_BY_ONE = _any(
    r"too many open files|\bEMFILE\b|\bENFILE\b|unable to create (?:new )?native thread|can't start new thread",
    r"pthread_create.*failed|failed to create new OS thread|fork\b.*resource temporarily unavailable",
    r"inotify (?:instances|watches)|inotify_add_watch|file watchers reached|vm\.max_map_count",
    r"exceed open file resource limit|could not create shared memory",
    r"(?:connect|dial|request).*(?:cannot assign requested address|EADDRNOTAVAIL)",
)
"""A limit of the operating system (getrlimit(2), inotify(7), ip_local_port_range): it takes a while to be reached."""
OTHER_TABLES = _any(
    r"unknown column|no such (?:column|table)|(?:column|relation|table) \S+ (?:does not|doesn.t) exist",
    r"(?:table or view|function|type|schema) (?:\S+ )?does not exist|\bORA-0090[04]\b",
    r"undefined (?:column|table)|invalid column name|invalid object name|unknown collection",
    r"null value in column|doesn't have a default value|violates (?:not-null|check) constraint",
    r"schema-validation: |migrations are pending|PendingMigration|unapplied migration",
    r"invalid input value for enum|value too long for type|data too long for column|data truncated for column",
)
"""Another version of a program knows other tables, or others' limits."""
OTHER_PROTOCOL = _any(
    r"HTTP response to HTTPS client|HTTP request (?:was sent )?to (?:an )?HTTPS (?:server|port)",
    r"first record does not look like a TLS handshake|wrong.version.number|SSL23_GET_SERVER_HELLO|unsupported.protocol",
    r"unrecognized SSL message|plaintext connection\?|not an SSL/TLS record|handshake_failure|handshake failure",
    r"protocol version (?:not supported|\S+ is not accepted)|no cipher suites? in common|server does not support SSL",
    r"(?:malformed|unexpected) HTTP (?:response|version)|preface.{0,20}(?:invalid|bogus|not)|ALERT_PROTOCOL_VERSION",
    r"SSL is not enabled on the server|corrupted frame was received|frame header looked like an HTTP/1",
    r"invalid character found in method name|Received fatal alert: protocol_version",
    r"SSL required|TLS required|require_secure_transport",
)
"""One speaks TLS, or another version of it or of HTTP, where the other does not."""
FILE_KEPT = _any(
    r"\bEACCES\b|\bEROFS\b|read-only file ?system|(?:errno 13\]|errno 30\]|\(13: permission denied)",
    r"(?:open|mkdir|create|write|unlink|rename|chown|chmod|stat|touch|cannot \w+ (?:\w+ )?)\b[^|]{0,120}"
    r"(?:permission denied|operation not permitted)",
    r": permission denied(?! for\b| \()|could not change permissions|is not writable|issues with file permissions",
    r"\(permission denied\)|AccessDeniedException: /|Access to the path .* is denied",
)
"""A file that a process may not read or write, or a port that it may not open."""
NO_PART = _any(
    r"ModuleNotFoundError|no module named|cannot find (?:module|package)|ClassNotFound|NoClassDefFound",
    r"NoSuchMethodError|error while loading shared libraries|cannot open shared object|could not find or load main",
    r"error loading shared librar|\bclass \W\w+\W not found|GemNotFound|module \S+ is not available",
    r"no suitable driver found|unable to load dynamic library|undefined symbol",
    r"version .GLIBC|cannot load such file|could not load (?:file or assembly|library)|DllNotFound",
)
"""What belongs to a program and is not in its image, or not where it looks."""
NO_OPTION = _any(
    r"unknown variable|bad option|unrecogni[sz]ed command or argument|invalid choice: ",
    r"unknown (?:shorthand |long |short )?(?:flag|option|argument)s?\b|flag provided but not defined|no such option",
    r"unrecogni[sz]ed (?:argument|option|VM option)|could not create the java virtual machine",
    r"(?:invalid|illegal|unexpected) (?:option|argument)\b(?! (?:supplied|passed|type))",
)
"""A program is started with what this version of it does not take."""
NO_SETTING = _any(
    r"(?:environment variable|env(?:ironment)? var)s?\b.{0,60}(?:not (?:set|found|defined)|missing|required|empty)",
    r"(?:missing|undefined|unset) (?:required )?(?:environment variable|env(?:ironment)? var|config|setting|propert)",
    r"KeyError: '(?-i:[A-Z][A-Z0-9_]{2,})'|required key \w+ missing value|could not resolve placeholder",
    r"(?-i:\b[A-Z][A-Z0-9]*_[A-Z0-9_]+) (?:is )?(?:not set|must be set|required|missing|undefined|empty)",
    r"(?:must specify|missing) .?(?-i:[A-Z][A-Z0-9_]{3,})|(?:password|option|attribute|url|variable) is not specified",
    r"setting must not be empty|ImproperlyConfigured|property has not been initialized|no application encryption key",
    r"failed to configure a datasource|missing .secret_key_base|could not find region|Settings\b.*field required",
    r"Failed to bind properties|No value (?:found |provided )?for key",
)
"""A program is not told what it asks to be told."""
UNREADABLE = _any(
    r"WRONGTYPE|(?:de)?serializationexception|deserializ\w+ (?:key|record|message|payload|object|value(?! of type))",
    r"unknown magic byte|unpickl\w+|InvalidClassException|incompatible (?:schema|with an earlier schema)",
    r"unknown (?:wire type|enum value)|incompatible with server|database files are incompatible|unserialize\(\)",
    r"(?:RDB format|meta file|redo log format|index format|on-disk format) version|IndexFormatToo(?:Old|New)",
    r"unsupported (?:pickle|redo log|marshal)|incompatible marshal|unregistered class ID|StreamCorrupted",
    r"featureCompatibilityVersion|downgrade is not supported|cannot upgrade a node from",
    r"data directory (?:was )?(?:built|initiali[sz]ed) by",
)
"""Another version of a program wrote what a store, a queue or a cache keeps."""
UNFIT = _any(
    r"cannot unmarshal \w+ into Go (?:struct field|value)|Cannot deserialize value of type|MismatchedInputException",
    r"UnrecognizedPropertyException|Unrecognized field \"|validation errors? for (?-i:[A-Z])\w+|json: unknown field",
    r"Expected BEGIN_\w+ but was|invalid type: .{1,80}, expected |JSON value could not be converted",
    r"DateTimeParseException|parsing time \"[^\"]*\" as|Invalid isoformat string|time data .{1,60} not match format",
    r"MissingFieldException|JsonDecodingException|missing field `|has no field named|mapper_parsing_exception",
    r"AvroTypeException|cannot parse invalid wire-format data|Protocol message contained an invalid tag",
)
UNPARSED = _any(
    r"config(?:uration)?(?: file)? error|invalid config(?!map)|error (?:during )?parsing(?! command)",
    r"unknown directive|unknown property|unrecogni[sz]ed configuration parameter|field \S+ not found in type",
    r"yaml: unmarshal errors|cannot unmarshal the configuration|could not parse the JSON",
    r"configuration file .* contains errors|syntax error (?:in file|on line \d)",
    r"\[emerg\]|\b(?:yaml|toml): line \d+: (?!cannot unmarshal)",
    r"\b(?:at )?line \d+,? col(?:umn)? \d|\.(?:conf|cfg|ya?ml|toml|json):\d+",
)
NO_CONNECTION = _any(
    r"too many (?:clients|connections)|connection slots are reserved|max number of clients reached",
    r"max_client_conn|max_user_connections|no more connections allowed|connection limit exceeded",
    r"maximum connections exceeded|too many open connections|(?:connection|session) limit (?:\(|for the database)",
    r"maximum number of (?:sessions|processes|connections)|\bORA-(?:12516|12518|12519|12520|00018|00020)\b",
)
"""What databases say of themselves that have as many connections as they may."""
RAN_OUT = _any(
    r"has expired|validity check failed|is not (?:yet valid|valid yet)|CertificateExpired|CertificateNotYetValid",
    r"NotTimeValid|Expired(?:Token|Jwt|Certificate)|TokenExpired|(?:certificate|cert|token|licen[sc]e|key)_expired",
    r"\b(?:certificate|cert|token|licen[sc]e|key|jwt|password|credentials?|secret|subscription|trial)s?\b.{0,100}\bexpired",
    r"\bexpired\W+(?:\w+\W+)?(?:certificate|token|licen[sc]e|key|jwt|credential)",
)
"""A certificate, a token or a licence is over, or has not begun."""
NO_FILE = _any(
    r"no such file or directory|FileNotFound|NoSuchFile|DirectoryNotFound|\bENOENT\b|unable to access jarfile",
    r"could not find (?:file|a part of the path)|cannot be opened because it does not exist",
)
NOT_BORNE = _any(
    r"Cannot read propert(?:y|ies)\b.{0,60} of (?:undefined|null)|(?:undefined|null) is not (?:an object|iterable)",
    r"\bis not a function\b|NullPointerException|NullReferenceException|Object reference not set",
    r"nil pointer dereference|assignment to entry in nil map|index out of (?:range|bounds)|OutOfBoundsException",
    r"'NoneType' object|undefined (?:local variable or )?method \W?\w+\W? for|function \w+\(\) on null",
    r"Undefined (?:array key|index|property|offset)|Option::unwrap\(\)` on a `None`|KeyError: '(?-i:[a-z])",
)
"""A program meets what its code did not think of, in what it is given or in how it was written anew: who says so does
not say the cause, but that it is no lack of room."""
UNACKNOWLEDGED = _any(
    r"delivery acknowledgement on channel \d+ timed out|consumer ack(?:nowledgement)? timed out",
    r"max\.poll\.interval\.ms|consumer poll timeout has expired",
)
"""As RabbitMQ (https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout) and Kafka's clients say that who reads
does not say in time that it is done."""
KEPT_IN = _any(r"\bBlackHoleCluster\b")
"""As Envoy says that a mesh lets nobody call what it does not know
(https://istio.io/latest/docs/tasks/traffic-management/egress/egress-control/)."""
TRACKED = _any(r"conntrack(?: table)? (?:is )?full|nf_conntrack: .*table full|conntrack limit")
"""As a kernel says that it keeps as many connections as it may
(https://docs.kernel.org/networking/nf_conntrack-sysctl.html)."""
