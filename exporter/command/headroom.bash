# Completion of the `headroom` command for bash: subcommands, options, their values, files and the PIDs of living processes.
#
# Installed as share/bash-completion/completions/headroom, where bash-completion finds it by itself; without that package:
#   source headroom.bash
# Subcommands and options are read from `headroom --help`, so that they are those of the installed version. Nothing of bash-completion
# is needed, and no other program.

# The long options in a --help on stdin.
_headroom_options() {
  local line
  while IFS= read -r line; do
    [[ $line =~ ^\ \ (-[a-z],\ *)?(--[a-z-]+) ]] && printf '%s\n' "${BASH_REMATCH[2]}"
  done
}

# The subcommands in a --help on stdin.
_headroom_subcommands() {
  local line inside=
  while IFS= read -r line; do
    if [[ $line =~ ^[A-Za-z]+: ]]; then
      [[ $line == [Ss][Uu][Bb]* ]] && inside=yes || inside=
    elif [[ -n $inside && $line =~ ^\ \ ([a-z]+) ]]; then
      printf '%s\n' "${BASH_REMATCH[1]}"
    fi
  done
}

# Candidates for the word that is being typed, one a line on stdin. Those with blanks are no words of ours.
_headroom_offer() {
  local candidate
  while IFS= read -r candidate; do
    [[ -n $candidate && $candidate == "$current"* ]] && COMPREPLY+=("$candidate")
  done
}

_headroom_files() {
  local candidate found=
  compopt -o filenames 2>/dev/null
  while IFS= read -r candidate; do COMPREPLY+=("$candidate") found=yes; done < <(compgen -f -- "$current")
  # A name that was begun with quotes or backslashes: readline's own completion knows them.
  [[ -n $found ]] || compopt -o default 2>/dev/null
}

_headroom_folders() {
  local candidate
  compopt -o filenames 2>/dev/null
  while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -d -- "$current")
}

# Processes that live, of all that `headroom ps --json` lists.
_headroom_pids() {
  local line pid=
  while IFS= read -r line; do
    [[ $line =~ ^\ +\"pid\":\ ([0-9]+) ]] && pid=${BASH_REMATCH[1]}
    [[ $line =~ ^\ +\"state\":\ \"living\" ]] && printf '%s\n' "$pid"
  done < <("$1" ps --json 2>/dev/null)
}

# The values of an option, of a subcommand; fails when anything may follow.
_headroom_values() {
  case $1 in
    --order) printf '%s\n' file free ;;
    --tag) printf '%s\n' size thread stream recorded none ;;
    --policy) printf '%s\n' fail retry wait: checkpoint ;;
    --bind) printf '%s\n' warn fail next ;;
    --device) printf '%s\n' host cuda:0 ;;
    --allocator) printf '%s\n' async direct ;;
    --speed) printf '%s\n' max 1x 0.1x ;;
    --loop) printf '%s\n' forever ;;
    --budget) printf '%s\n' unlimited ;;
    --at) [[ $2 == convert ]] && printf '%s\n' end peak || printf '%s\n' now peak ;;
    --points | --hold | --seconds | --stretch | --every | --fail-above | --listen | --hook | --device-total | --stop-after | --keep-dead | --manager | --trace-device) ;;
    --to) printf '%s\n' chrome torch csv folded json ;;
    *) return 1 ;;
  esac
}

_headroom() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} subcommand='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      subcommand=${COMP_WORDS[i]}
      break
    fi
  done

  if [[ -z $subcommand ]]; then
    if [[ $current == -* ]]; then
      _headroom_offer < <("$program" --help 2>/dev/null | _headroom_options)
    else
      _headroom_offer < <("$program" --help 2>/dev/null | _headroom_subcommands)
    fi
    return
  fi

  # bash splits words at '=' and ':', so that --order=fr arrives as --order, =, fr.
  [[ $current == '=' ]] && current=''
  [[ $previous == '=' ]] && previous=${COMP_WORDS[COMP_CWORD - 2]}
  case $previous in
    --dir | --dump-dir) _headroom_folders; return ;;
    -o | --output | --tls-cert | --tls-key | --auth) _headroom_files; return ;;
    --*) if _headroom_values "$previous" "$subcommand" >/dev/null; then _headroom_offer < <(_headroom_values "$previous" "$subcommand"); return; fi ;;
  esac

  if [[ $current == -* ]]; then
    _headroom_offer < <("$program" "$subcommand" --help 2>/dev/null | _headroom_options)
    return
  fi
  case $subcommand in
    ps | devices | export) ;;
    top) _headroom_offer < <(_headroom_pids "$program") ;;
    dump | explain) _headroom_offer < <(_headroom_pids "$program"); _headroom_files ;;
    *) _headroom_files ;;
  esac
}

complete -F _headroom headroom
