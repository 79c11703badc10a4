// Command: one subcommand of graph_runner.
#ifndef WEFT_TOOLS_COMMANDS_COMMAND_H_
#define WEFT_TOOLS_COMMANDS_COMMAND_H_

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "tools/console/console.h"
#include "tools/console/exit_code.h"

namespace weft {

// What the person asked for lives in the command's members: AddOptions binds flags to them, Run
// acts on them. One object serves one call. Neither the constructor nor AddOptions looks at
// devices, files or the network: help and usage errors appear at once.
class Command {
 public:
  virtual ~Command() = default;

  virtual std::string name() const = 0;
  // One line, no full stop: "Says what a model is and what of it runs and trains".
  virtual std::string summary() const = 0;
  // What follows the name: "MODEL.onnx --input NAME=FILE --output-dir DIR".
  virtual std::string usage() const = 0;
  // Three command lines, as they can be copied.
  virtual std::vector<std::string> examples() const = 0;
  // Whether it reads models, whose ops may be of libraries: the option --op_library is then added.
  virtual bool reads_models() const { return true; }
  virtual void AddOptions(CLI::App& app) = 0;
  // Results to console.out, progress and remarks to console.err. An error's text is printed by the
  // caller, and its exit code is ExitCodeOf(error).
  virtual absl::StatusOr<ExitCode> Run(Console& console) = 0;
};

std::unique_ptr<Command> NewCalibrateCommand();
std::unique_ptr<Command> NewChaosCommand();
std::unique_ptr<Command> NewCheckCommand();
std::unique_ptr<Command> NewCkptCommand();
std::unique_ptr<Command> NewClusterCommand();
std::unique_ptr<Command> NewConformanceCommand();
std::unique_ptr<Command> NewDoctorCommand();
std::unique_ptr<Command> NewEvalCommand();
std::unique_ptr<Command> NewExampleCommand();
std::unique_ptr<Command> NewInspectCommand();
std::unique_ptr<Command> NewOpCommand();
std::unique_ptr<Command> NewOpsCommand();
std::unique_ptr<Command> NewPlanCommand();
std::unique_ptr<Command> NewRunCommand();
std::unique_ptr<Command> NewSimulateCommand();
std::unique_ptr<Command> NewTrainCommand();
std::unique_ptr<Command> NewVerifyCommand();
std::unique_ptr<Command> NewWorkerCommand();

}  // namespace weft

#endif  // WEFT_TOOLS_COMMANDS_COMMAND_H_
