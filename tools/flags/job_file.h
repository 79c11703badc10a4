// Job files: what the flags of a command say, as YAML.
//
//   model: lenet.onnx            # the positional argument
//   data: {x: images.npy}        # --data x=images.npy
//   lr: [1e-3, "head/*=1e-2"]    # --lr 1e-3 --lr 'head/*=1e-2'
//   no-shuffle: true
//
// Keys are the long names of the command's options ('_' may stand for '-'), whatever they are: a
// new option needs no line here. A flag wins over the file.
#ifndef WEFT_TOOLS_FLAGS_JOB_FILE_H_
#define WEFT_TOOLS_FLAGS_JOB_FILE_H_

#include <string>

#include "CLI/CLI.hpp"

namespace weft {

// Adds --config FILE.yaml and --print-config. A bad file is a usage error of the parse: it names
// file and line, for an unknown key the nearest option, and for a former name of an option its new
// one (tools/flags/renamed_flags.h). Borrows `app`. `print` must outlive the parse.
void AddJobFile(CLI::App& app, bool& print);

// After the parse: all that was given, by flags or the file, as a job file that says the same.
std::string JobFileText(const CLI::App& app);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_JOB_FILE_H_
