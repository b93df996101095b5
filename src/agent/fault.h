/* fault.h - errno, translated once for the wire. */
#ifndef DML_AGENT_FAULT_H
#define DML_AGENT_FAULT_H

#include "base/frame.h"

/* The fault that an errno means; DML_FAULT_NONE for 0. */
dml_fault dml_fault_from_errno(int err);

#endif
