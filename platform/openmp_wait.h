// How OpenMP's threads wait for their next loop.
#ifndef WEFT_PLATFORM_OPENMP_WAIT_H_
#define WEFT_PLATFORM_OPENMP_WAIT_H_

#include <string>
#include <utility>
#include <vector>

namespace weft {

// Variables of the environment that make the threads spin for some 100 microseconds between two
// loops (10,000 pauses; longer on processors whose pause is longer) and then sleep. Without them
// libgomp's spin for milliseconds, on cores that something else may need. Waking one takes 50
// microseconds, and a virtual machine may wake it on its caller's core: they part when both want it
// at once, which spinning is.
std::vector<std::pair<std::string, std::string>> OpenMpWait();

// libgomp reads them when it is loaded, which is before main. So this starts the program again, in
// the same process and with the same arguments, unless one of the variables is set already: then,
// or if the system refuses, it returns and has changed nothing. The first thing of main.
void RestartWithOpenMpWait(char** arguments);

}  // namespace weft

#endif  // WEFT_PLATFORM_OPENMP_WAIT_H_
