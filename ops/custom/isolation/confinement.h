// Takes from this process all that an operator does not need.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_CONFINEMENT_H_
#define WEFT_OPS_CUSTOM_ISOLATION_CONFINEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// Afterwards this process, for ever, and whatever code it loads:
//
//  - has no network: it is alone in a network namespace where the system allows that, and makes no
//    socket anywhere;
//  - opens files for reading alone, and those alone that the loader of libraries and the C library
//    need: below the folders of the system's libraries, `library_folders`, and what says which
//    processors there are (Landlock, of Linux 5.13 and later; without it, all that its user may
//    read);
//  - starts no process and no program, sends signals to itself alone, looks into no other process,
//    and gains no rights by any program;
//  - is killed when its parent ends, or the thread of it that started this process;
//  - leaves no core file and writes no byte to a file, and has no capability.
//
// What is refused fails with EPERM, or EACCES for files. Memory, threads, clocks, random numbers
// and the descriptors that are open already are left. Files that are open now stay usable.
//
// Before other threads are started; those there are would be confined by the filter alone. An error
// says what the system lacks: the process may then be confined in part and must load nothing.
absl::Status ConfineThisProcess(const std::vector<std::string>& library_folders);

// The folders that a variable such as LD_LIBRARY_PATH names, in order.
std::vector<std::string> FoldersOf(const char* path_list);

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_CONFINEMENT_H_
