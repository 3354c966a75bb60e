script_folder="/work/trees/sweep"
echo "echo Restoring environment" > "$script_folder/deactivate_conanbuildenv-release-x86_64.sh"
for v in RANLIB AR CXX CC
do
   is_defined="true"
   value=$(printenv $v) || is_defined="" || true
   if [ -n "$value" ] || [ -n "$is_defined" ]
   then
       echo export "$v='$value'" >> "$script_folder/deactivate_conanbuildenv-release-x86_64.sh"
   else
       echo unset $v >> "$script_folder/deactivate_conanbuildenv-release-x86_64.sh"
   fi
done

export RANLIB="/root/.cache/slipway/toolchains/zig-linux-x86_64-36e09da3034b15e2/ranlib"
export AR="/root/.cache/slipway/toolchains/zig-linux-x86_64-36e09da3034b15e2/ar"
export CXX="/root/.cache/slipway/toolchains/zig-linux-x86_64-36e09da3034b15e2/c++"
export CC="/root/.cache/slipway/toolchains/zig-linux-x86_64-36e09da3034b15e2/cc"