/* owner.h - names of users and groups, read from /etc/passwd and /etc/group by hand.
 *
 * A static program cannot use the name service switch, and in a sandbox these two files are all there is. */
#ifndef DML_AGENT_OWNER_H
#define DML_AGENT_OWNER_H

#include "agent/agent.h"

/* `out` has DML_AGENT_OWNER_BYTES; the number itself where there is no name. */
void dml_owner_user(dml_agent *agent, unsigned id, char *out);
void dml_owner_group(dml_agent *agent, unsigned id, char *out);
/* Forgets the latest answers: the files may have changed. Once a request. */
void dml_owner_forget(dml_agent *agent);

#endif
