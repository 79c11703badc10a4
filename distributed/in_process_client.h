// WorkerClient that calls a Worker of this process.
#ifndef WEFT_DISTRIBUTED_IN_PROCESS_CLIENT_H_
#define WEFT_DISTRIBUTED_IN_PROCESS_CLIENT_H_

#include <memory>

#include "distributed/worker.h"
#include "distributed/worker_client.h"

namespace weft {

// Borrows the worker.
std::unique_ptr<WorkerClient> NewInProcessClient(Worker& worker, RankId rank);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_IN_PROCESS_CLIENT_H_
