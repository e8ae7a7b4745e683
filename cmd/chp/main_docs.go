//go:build docs

package main

import (
	"os"

	"clustermap/internal/command/manpages"
)

// With the tag docs the program writes its manual pages and completion scripts.
func main() { os.Exit(manpages.Main(newRoot(), manual)) }

// manual has more sections for the page chp(1).
const manual = `# ENVIRONMENT
**CHP\_SERVER**
	servers of commands without **--server**, separated by commas

**CHP\_CONTEXT**
	context of commands without **--context**

**CHP\_CURVE\_KEY**
	file for **--curve-key**

**CHP\_CURVE\_SERVER\_KEY**
	key or file for **--curve-server-key**

**CHP\_CURVE\_ALLOW**
	keys or file for **--curve-allow**

**CHP\_CURVE\_ADMIN**
	keys or file for **--curve-admin**

**NOTIFY\_SOCKET**
	socket of the service manager, which **chp serve** tells when it is ready and when it stops

# FILES
**$XDG\_CONFIG\_HOME/chp/contexts.toml**
	contexts (default **~/.config/chp/contexts.toml** on Linux); see **chp-context(1)**

`
