/* request.h - from a frame to the function that serves it. */
#ifndef DML_AGENT_REQUEST_H
#define DML_AGENT_REQUEST_H

#include "agent/agent.h"

/* Serves one frame of the engine. False: it is none that an engine sends; the agent ends. What is only a bad argument
 * is answered with ERROR instead. */
bool dml_request_serve(dml_agent *agent, const dml_frame *frame);

#endif
