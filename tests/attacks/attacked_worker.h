// A worker process as a stranger on the network finds it, and the job that it has to do all the
// same.
#ifndef WEFT_TESTS_ATTACKS_ATTACKED_WORKER_H_
#define WEFT_TESTS_ATTACKS_ATTACKED_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "distributed/keys/key_maker.h"
#include "platform/process.h"
#include "tests/command_run.h"

namespace weft::testing {

// Starts the program that WEFT_RUNNER names as `worker` on a free port of this machine, with these
// words more; what it says goes to the end of the file `log`. Its address, "127.0.0.1:4711", or "",
// and the test has failed, where it does not listen.
std::string StartWorker(const Arguments& more, const std::string& log,
                        std::unique_ptr<Process>& process);

// Owns a folder with data, keys and a token, and the process, which it ends. For one thread.
class AttackedWorker {
 public:
  // What the worker asks of who connects: the token alone, or keys as well.
  enum class Door { kToken, kKeys };

  // A worker for data below DataPath and checkpoints below SavedPath. Null, and the test has
  // failed, where it does not listen.
  static std::unique_ptr<AttackedWorker> Start(Door door);
  ~AttackedWorker();

  const std::string& address() const { return address_; }  // "127.0.0.1:4711"
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string DataPath(const std::string& name) const { return folder_ + "/data/" + name; }
  std::string SavedPath(const std::string& name) const { return folder_ + "/saved/" + name; }
  // The folder of keys of a host or role (Door::kKeys).
  std::string KeyFolder(const std::string& name) const { return folder_ + "/keys/" + name; }

  // The words of a job on this worker, but for what lets it in. Its data are a pair of files.
  Arguments Job(const std::string& images, const std::string& labels, int steps) const;
  // The same with data that the worker may read.
  Arguments Job(int steps) const { return Job(DataPath("x.npy"), DataPath("y.npy"), steps); }
  // The words that let a job in.
  Arguments Credentials() const;

  // A folder of keys that `cluster keys` would not make, with the cluster's token.
  std::string ForgeKeys(const std::string& name, const std::string& authority_pem,
                        const std::string& identity_pem);
  // The cluster's own authority and its private key, as only its owner has them.
  Identity Authority() const;
  std::string ReadKeyFile(const std::string& folder, const std::string& file) const;
  std::string token() const;

  bool is_running() const { return !process_->Poll().has_value(); }
  // What the worker has said, with --log-level debug.
  std::string Log() const;
  // PeakMemory begins anew with what the process has now; it stays where the system refuses that.
  void ForgetPeakMemory() const;
  // The most memory that the process has had, in bytes.
  int64_t PeakMemory() const;
  // The worker runs, an honest job ends well on it, and neither of them has said a secret.
  void ExpectUnharmed() const;
  // The text has no token and no private key of any folder of keys.
  void ExpectNoSecret(const std::string& text) const;

 private:
  AttackedWorker(std::string folder, Door door) : folder_(std::move(folder)), door_(door) {}
  void MakeFiles();
  void Launch();

  const std::string folder_;
  const Door door_;
  std::string address_;
  std::unique_ptr<Process> process_;
};

// A request for a certificate of this role for the tests' host, valid around now.
CertificateRequest RequestOf(Role role);

}  // namespace weft::testing

#endif  // WEFT_TESTS_ATTACKS_ATTACKED_WORKER_H_
