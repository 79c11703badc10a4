// Processes that the system has ended for want of memory.
#ifndef WEFT_DISTRIBUTED_PROCESS_MEMORY_KILLS_H_
#define WEFT_DISTRIBUTED_PROCESS_MEMORY_KILLS_H_

#include <cstdint>

#include "platform/file_system.h"

namespace weft {

// How many processes of this machine, in control groups or not, the system has ended since it was
// started because there was no memory left (oom_kill of /proc/vmstat, proc(5)); 0 where it does not
// say. Such an end looks like `kill -9` to everybody else.
int64_t MemoryKills(FileSystem& files);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_MEMORY_KILLS_H_
